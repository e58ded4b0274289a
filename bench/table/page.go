package table

import (
	"bytes"
	"fmt"
)

// The lines between which a page may be written; what stands between them is
// the benchmark's own, all else is left as it is.
func beginMark(name string) string { return "<!-- bench " + name + " -->" }
func endMark(name string) string   { return "<!-- end of bench " + name + " -->" }

// Replace puts text into the page's region of that name. A page without that
// region, with it twice, or with its end before its beginning is an error that
// says which lines to add.
func Replace(page []byte, name string, text []byte) ([]byte, error) {
	begin, end := []byte(beginMark(name)+"\n"), []byte(endMark(name))
	if bytes.Count(page, begin) != 1 || bytes.Count(page, end) != 1 {
		return nil, fmt.Errorf("the page needs the lines %q and %q, once each: put them where the tables are to be", beginMark(name), endMark(name))
	}
	from, to := bytes.Index(page, begin)+len(begin), bytes.Index(page, end)
	if to < from {
		return nil, fmt.Errorf("%q stands before %q: exchange them", endMark(name), beginMark(name))
	}
	var out bytes.Buffer
	out.Write(page[:from])
	fmt.Fprintf(&out, "\n%s\n\n", bytes.TrimSpace(text))
	out.Write(page[to:])
	return out.Bytes(), nil
}
