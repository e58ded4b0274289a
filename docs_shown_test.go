package holdfast_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

// masks are what differs from run to run, and what stands for it.
var masks = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`\b1[0-9]{15}\b`), "<id>"},
	{regexp.MustCompile(`\b[a-z0-9]{5,13}-[0-9]+-[0-9]+-[0-9]+\b`), "<connection>"},
	{regexp.MustCompile(`\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)`), "<time>"},
	{regexp.MustCompile(`\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT\b`), "<time>"},
}

func masked(text string) string {
	for _, m := range masks {
		text = m.pattern.ReplaceAllString(text, m.as)
	}
	return text
}

// shownPattern is what output has to look like to be the one that is shown,
// from its first line on. Empty lines around it do not count.
func shownPattern(shown string) *regexp.Regexp {
	var pattern strings.Builder
	pattern.WriteString(`\A\n*`)
	for line := range strings.SplitSeq(strings.Trim(shown, "\n"), "\n") {
		if strings.TrimSpace(line) == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		parts := strings.Split(masked(line), "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(strings.ReplaceAll(parts[i], "\r", ""))
		}
		pattern.WriteString(strings.Join(parts, `.*`) + `\n`)
	}
	return regexp.MustCompile(pattern.String())
}

// output is what one stream of one block writes, in the foreground and behind it.
type output struct {
	mu      sync.Mutex
	text    []byte
	whole   bool          // the foreground has written all that it writes
	changed chan struct{} // closed at each change
	seen    int           // bytes of the masked text that a page has shown
}

// endOfBlock is written behind what the foreground of a block has written.
const endOfBlock = 0

func newOutput() *output { return &output{changed: make(chan struct{})} }

// Write takes what was written. CR is left out, which HTTP's heads have at
// the end of lines.
func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range data {
		switch b {
		case endOfBlock:
			o.whole = true
		case '\r':
		default:
			o.text = append(o.text, b)
		}
	}
	close(o.changed)
	o.changed = make(chan struct{})
	return len(data), nil
}

// state is the masked text, in whole lines.
func (o *output) state() (text string, whole bool, changed chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text = string(o.text)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return masked(text), o.whole, o.changed
}

// awaitWhole waits until the foreground has written all.
func (o *output) awaitWhole() string {
	for {
		text, whole, changed := o.state()
		if whole {
			return text
		}
		<-changed
	}
}

// awaitShown waits for the next lines of what goes on in the background, for
// limit at most.
func (o *output) awaitShown(shown string, limit time.Duration) error {
	pattern := shownPattern(shown)
	late := time.After(limit)
	for {
		text, _, changed := o.state()
		seen := min(o.seen, len(text)) // a line that was half there may have become longer
		if end := pattern.FindStringIndex(text[seen:]); end != nil {
			o.seen = seen + end[1]
			return nil
		}
		select {
		case <-changed:
		case <-late:
			return fmt.Errorf("did not come:\n%s\nbut\n%s", shown, text[seen:])
		}
	}
}

// wantShown compares with the page what the foreground has written.
func wantShown(shown, text string) error {
	if end := shownPattern(shown).FindStringIndex(text); end == nil || strings.Trim(text[end[1]:], "\n") != "" && !endsOpen(shown) {
		return fmt.Errorf("is not what the page shows:\n%s\nbut\n%s", shown, text)
	}
	return nil
}

// endsOpen: the last line that is shown is …, and anything may come.
func endsOpen(shown string) bool {
	shown = strings.TrimRight(shown, " \n")
	return strings.HasSuffix("\n"+shown, "\n…")
}
