package holds

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
)

// FuzzTemplate: what is filled is what a regular expression finds, and what it
// does not account for is an error, or stays as it stands; a text whose
// percent signs are doubled comes out as it was.
func FuzzTemplate(f *testing.F) {
	for _, template := range []string{"", "%I", "100%% %(a)I", `%(a\)b\\)s%`, "%(", "%(%(%(a)", "%(a)", "%20%C3%A9", "%x%o%(a)o", "%\xff%(\xff)\xff", "%%%"} {
		f.Add([]byte(template))
	}
	known := regexp.MustCompile(`(?s)%%|%\(((?:\\.|[^\\)])*)\)(.)|%([A-Za-z])`)
	f.Fuzz(func(t *testing.T, template []byte) {
		if bytes.ContainsFunc(template, func(r rune) bool { return r > 0x7f }) {
			return // a regular expression's "." is a character, a placeholder's letter a byte
		}
		want, fault := reference(known, string(template))
		before := bytes.Clone(template)
		e := expansion{fill: seen}
		got, err := e.run(template)
		if (err != nil) != fault || err == nil && string(got) != want || err != nil && got != nil {
			t.Fatalf("%q is %q, %v; want %q, a fault: %v", template, got, err, want, fault)
		}
		e = expansion{fill: seen, lenient: true}
		if got, err := e.run(template); err != nil || e.left != fault || !fault && string(got) != want {
			t.Fatalf("leniently %q is %q, %v, left %v; want %q, left %v", template, got, err, e.left, want, fault)
		}
		if !bytes.Equal(template, before) {
			t.Fatalf("it wrote into %q", before)
		}
		doubled := bytes.ReplaceAll(template, []byte("%"), []byte("%%"))
		e = expansion{fill: seen}
		if got, err := e.run(doubled); err != nil || !bytes.Equal(got, template) {
			t.Fatalf("doubled %q is %q, %v", template, got, err)
		}
	})
}

// reference fills a template as seen does. It is a fault if a percent sign
// begins no placeholder that seen knows.
func reference(known *regexp.Regexp, template string) (filled string, fault bool) {
	var b strings.Builder
	for {
		at := strings.IndexByte(template, '%')
		if at < 0 {
			b.WriteString(template)
			return b.String(), fault
		}
		b.WriteString(template[:at])
		template = template[at:]
		m := known.FindStringSubmatchIndex(template)
		if m == nil || m[0] != 0 {
			return "", true
		}
		p := placeholder{raw: []byte(template[:m[1]])}
		switch {
		case template[:m[1]] == "%%":
			b.WriteByte('%')
			template = template[2:]
			continue
		case m[2] >= 0:
			p.argument, p.argued, p.letter = regexp.MustCompile(`(?s)\\(.)`).ReplaceAllString(template[m[2]:m[3]], "$1"), true, template[m[4]]
		default:
			p.letter = template[m[6]]
		}
		text, err := seen(p)
		switch {
		case errors.Is(err, errOther):
			b.Write(p.raw)
		case err != nil:
			return "", true
		}
		b.WriteString(text)
		template = template[m[1]:]
	}
}

// FuzzRewrite: whatever content and meta are, the result keeps its bound, an
// error has nothing beside it, and a body in which nothing was left is what an
// item of the same content would be.
func FuzzRewrite(f *testing.F) {
	for _, content := range []string{"id: %I\ndata: 5%%\n\n", "%(user)s", "%(5)I", "%%I %%%%", "%(a", "%d", strings.Repeat("%(user)s", 50)} {
		for _, format := range []string{"%(news)s", "caf%%C3:%(news)s", "%(none)s", "%"} {
			f.Add([]byte(content), format, "bob", uint8(len(content)))
			f.Add([]byte(content), format, "100%I", uint8(len(format)))
		}
	}
	lists := [][]string{nil, {"build-id"}, {"var-subst"}, {"build-id", "var-subst"}, {"var-subst", "skip-self", "build-id"}, {"build-id", "build-id"}}
	f.Fuzz(func(t *testing.T, content []byte, format, user string, which uint8) {
		filters := lists[int(which)%len(lists)]
		sub := watching([]string{"news=6", "none"}, "id_format", format, "user", user)
		if which >= 128 {
			sub.meta["id_encoding"] = "hex"
		}
		before := bytes.Clone(content)
		item, err := rewrite(filters, sub, content)
		body, warned := rewriteBody(filters, sub, content)
		if !bytes.Equal(content, before) {
			t.Fatalf("%q wrote into %q", filters, before)
		}
		if len(item) > maxExpanded || len(body) > max(maxExpanded, len(content)) || err != nil && item != nil {
			t.Fatalf("%q: %d bytes, %v, and a body of %d", filters, len(item), err, len(body))
		}
		if !warned && (err != nil || !bytes.Equal(item, body)) {
			t.Fatalf("%q makes of %q %q, %v, and without a warning the body %q", filters, content, item, err, body)
		}
		if warned && err == nil && !bytes.Contains(content, []byte("I")) && !strings.Contains(user, "I") {
			t.Fatalf("%q warns of %q, of which there is %q", filters, content, item)
		}
	})
}
