package bus

import (
	"bytes"
	"fmt"
	"os"

	"holdfast/bench/peer"
	"holdfast/bench/table"
)

// Page is where the tables go, between two lines of its own.
const (
	Page  = "docs/scale.md"
	begin = "<!-- bus-cost -->\n"
	end   = "<!-- /bus-cost -->"
)

// WritePage puts the tables into the page.
func WritePage(path string, environment peer.Environment, r *table.Report) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s\n\n", environment.Sentence())
	r.Markdown(&text)
	changed, err := replace(old, text.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, changed, 0o644)
}

// replace changes what stands between the two lines and nothing else.
func replace(page, text []byte) ([]byte, error) {
	from, to := bytes.Index(page, []byte(begin))+len(begin), bytes.Index(page, []byte(end))
	if bytes.Count(page, []byte(begin)) != 1 || bytes.Count(page, []byte(end)) != 1 || to < from {
		return nil, fmt.Errorf("the page needs the lines %q and %q, once each and in this order", begin[:len(begin)-1], end)
	}
	return fmt.Appendf(nil, "%s\n%s\n\n%s", page[:from], bytes.TrimSpace(text), page[to:]), nil
}
