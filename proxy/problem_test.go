package proxy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"holdfast/docs"
	"holdfast/holds"
)

// beside are the sections of docs/troubleshoot.md that are of no word of ours.
var beside = []string{"200", "gap", "499", "exit 1", "exit 2", "exit 78",
	"Everything is slow", "Not ready", "Events do not arrive", "The stream ends every 60 s", "Memory grows", "Too many open files"}

// sectionStatus is what a reason's section begins with.
var sectionStatus = regexp.MustCompile(`(?m)^## (\S+)\n\n(?:As an answer, )?(\d{3})\b`)

func TestProblem_EveryReasonAndEveryEndHasItsSectionAndEverySectionIsOfOne(t *testing.T) {
	held, err := holds.New(holds.Config{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	ends := slices.Collect(maps.Keys(held.Snapshot().Ended[holds.ModeStream]))
	known := slices.Concat(slices.Collect(maps.Keys(statusOf)), ends, beside)
	var sections []string
	for _, match := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(docs.Troubleshoot, -1) {
		heading := match[1]
		if slices.Contains(sections, heading) {
			t.Errorf("two sections are called %s: what links there finds the first", heading)
		}
		if !slices.Contains(known, heading) {
			t.Errorf("the section %s is of no reason and of no end", heading)
		}
		sections = append(sections, heading)
	}
	for _, word := range known {
		if !slices.Contains(sections, word) {
			t.Errorf("nothing explains %s: write a section into docs/troubleshoot.md", word)
		}
	}
}

func TestProblem_ASectionBeginsWithTheStatusOfItsReason(t *testing.T) {
	said := map[string]string{}
	for _, match := range sectionStatus.FindAllStringSubmatch(docs.Troubleshoot, -1) {
		said[match[1]] = match[2]
	}
	for reason, status := range statusOf {
		if got := said[reason]; got != fmt.Sprint(status) {
			t.Errorf("the section %s begins with %q, want %d", reason, got, status)
		}
	}
}

func TestProblem_ItsTypeIsTheSectionOfItsReason(t *testing.T) {
	for reason, status := range statusOf {
		want := fmt.Sprintf(`{"type":"docs/troubleshoot.md#%s","title":"%s","status":%d,"reason":"%s","detail":"why"}`+"\n",
			reason, http.StatusText(status), status, reason)
		if got := (&fault{reason: reason, text: "why"}).answer().body; string(got) != want {
			t.Errorf("the body is %swant %s", got, want)
		}
		if got := Refuse(reason, "why").Body; string(got) != want {
			t.Errorf("of a route of our own the body is %swant %s", got, want)
		}
	}
}

// builtWith are addresses that a binary may be built with.
var builtWith = map[string]string{
	"docs":                              "docs/troubleshoot.md",
	"docs/":                             "docs/troubleshoot.md",
	"":                                  "troubleshoot.md",
	"/":                                 "/troubleshoot.md",
	"https://docs.example.com/a/b":      "https://docs.example.com/a/b/troubleshoot.md",
	"https://docs.example.com/a/b/":     "https://docs.example.com/a/b/troubleshoot.md",
	"https://[::1]:8443/~x/v1.2":        "https://[::1]:8443/~x/v1.2/troubleshoot.md",
	"https://example.com/?a=b&c=%20%Af": "https://example.com/?a=b&c=%20%Af/troubleshoot.md",
	"https://example.com/#top":          "https://example.com/%23top/troubleshoot.md",
	"a b":                               "a%20b/troubleshoot.md",
	`"},{"`:                             "%22%7D,%7B%22/troubleshoot.md",
	`C:\docs`:                           "C:%5Cdocs/troubleshoot.md",
	"<script>":                          "%3Cscript%3E/troubleshoot.md",
	"a\r\nX: y\x00\x7f":                 "a%0D%0AX:%20y%00%7F/troubleshoot.md",
	"ü\xff":                             "%C3%BC%FF/troubleshoot.md",
	"100%":                              "100%25/troubleshoot.md",
	"%4":                                "%254/troubleshoot.md",
	"%zz%":                              "%25zz%25/troubleshoot.md",
}

func TestProblem_WhateverItIsBuiltWithTheTypeIsAURI(t *testing.T) {
	for base, want := range builtWith {
		if got := pageIn(base); got != want {
			t.Errorf("built with %q the page is %q, want %q", base, got, want)
		}
		wantURI(t, base)
	}
}

// wantURI holds the page's address to what may stand in a URI, and to JSON.
func wantURI(t *testing.T, base string) {
	t.Helper()
	page := pageIn(base)
	if i := strings.IndexFunc(page, func(r rune) bool { return r != '%' && (r >= 0x80 || !strings.ContainsRune(inURI, r)) }); i >= 0 {
		t.Errorf("built with %q the page is %q, with %q", base, page, page[i:])
	}
	if _, err := url.PathUnescape(page); err != nil {
		t.Errorf("built with %q the page is %q: %v", base, page, err)
	}
	if !strings.HasSuffix(page, "troubleshoot.md") {
		t.Errorf("built with %q the page is %q", base, page)
	}
	body, err := json.Marshal(problem{Type: page + "#" + reasonLaneFull})
	var read problem
	if err != nil || json.Unmarshal(body, &read) != nil || read.Type != page+"#"+reasonLaneFull {
		t.Errorf("built with %q the type is read as %q", base, read.Type)
	}
}

func FuzzProblem_WhateverItIsBuiltWithTheTypeIsAURI(f *testing.F) {
	for base := range builtWith {
		f.Add(base)
	}
	f.Fuzz(wantURI)
}
