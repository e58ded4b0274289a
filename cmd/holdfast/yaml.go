package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxFaults bounds what one refused configuration prints: a file with a wrong indent can be wrong everywhere.
const maxFaults = 10

// mark is a place in the configuration file, both numbers counted from 1.
type mark struct{ line, column int }

func (m mark) before(other mark) bool {
	return m.line < other.line || m.line == other.line && m.column < other.column
}

// fault is one thing that is wrong, as one sentence, and where it stands.
type fault struct {
	at   mark
	text string
}

// configError is a configuration that cannot be served. Error gives one sentence a line, in file order;
// the process exits 78.
type configError struct{ sentences []string }

func (e *configError) Error() string { return strings.Join(e.sentences, "\n") }

// source is a configuration's text as far as checks need it after decoding: where each value and each key stands,
// the order of named entries (slots are dealt in it), and what was found wrong so far. Values are named by their path
// as a reader would write it: `lanes.web.slots`, `routes[0].match`.
type source struct {
	file   string // "" when the configuration came from flags
	env    func(string) (string, bool)
	flags  map[string]string // path to the flag that gave it, for a configuration without a file
	values map[string]mark
	keys   map[string]mark
	order  map[string][]string
	faults []fault
}

func newSource(file string, env func(string) (string, bool)) *source {
	return &source{file: file, env: env, values: map[string]mark{}, keys: map[string]mark{}, order: map[string][]string{}}
}

// wrong records a fault of the value at path; the sentence begins with the path, or the flag that gave the value.
func (s *source) wrong(path, format string, args ...any) {
	s.wrongAt(s.place(path), "%s %s", s.subject(path), fmt.Sprintf(format, args...))
}

// subject is what a sentence calls the value at path.
func (s *source) subject(path string) string {
	if flag, ok := s.flags[path]; ok {
		return flag
	}
	if path == "" {
		return "the configuration"
	}
	return path
}

func (s *source) wrongAt(at mark, format string, args ...any) {
	s.faults = append(s.faults, fault{at, fmt.Sprintf(format, args...)})
}

// isSet tells a value that was written from one that has its default.
func (s *source) isSet(path string) bool {
	_, ok := s.values[path]
	return ok
}

// place finds the value at path, or what encloses it when it was left out.
func (s *source) place(path string) mark {
	for {
		if at, ok := s.values[path]; ok {
			return at
		}
		if path == "" {
			return mark{1, 1}
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// err is what was found wrong, in file order, or nil.
func (s *source) err() error {
	if len(s.faults) == 0 {
		return nil
	}
	sort.SliceStable(s.faults, func(i, j int) bool { return s.faults[i].at.before(s.faults[j].at) })
	e := &configError{}
	for i, f := range s.faults {
		if i == maxFaults {
			e.sentences = append(e.sentences, fmt.Sprintf("%s: %d more faults follow (mend these first)", s.file, len(s.faults)-i))
			break
		}
		e.sentences = append(e.sentences, s.sentence(f.at, f.text))
	}
	return e
}

// sentence puts its place in front of text, where there is a file to have one.
func (s *source) sentence(at mark, text string) string {
	if s.file == "" {
		return text
	}
	return fmt.Sprintf("%s:%d:%d: %s", s.file, at.line, at.column, text)
}

// parse reads the one YAML document of data; nil when there is none, or when it is not YAML (recorded).
func (s *source) parse(data []byte) *yaml.Node {
	if at, what := badByte(data); what != "" {
		s.wrongAt(at, "%s", what)
		return nil
	}
	reader := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := reader.Decode(&document); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		s.wrongAt(syntaxFault(data, err))
		return nil
	}
	if err := reader.Decode(&second); err == nil {
		s.wrongAt(mark{second.Line, second.Column}, "a second document begins here (a configuration is one document: take out the ---)")
		return nil
	} else if !errors.Is(err, io.EOF) {
		s.wrongAt(syntaxFault(data, err))
		return nil
	}
	root := document.Content[0]
	if s.plain(root, false); len(s.faults) > 0 {
		return nil
	}
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil // `---` or comments alone
	}
	return root
}

// plain records anchors, aliases and tags: they make the value at a place come from somewhere else, and a
// configuration is to mean what its line says. A secret that begins with one of their characters is not shown.
func (s *source) plain(node *yaml.Node, secret bool) {
	at := mark{node.Line, node.Column}
	shown := func(sign, name string) string {
		if secret {
			return hidden
		}
		return quote(sign + name)
	}
	switch {
	case node.Kind == yaml.AliasNode:
		s.wrongAt(at, "%s is an alias (aliases are not read: write the value out)", shown("*", node.Value))
		return
	case node.Anchor != "":
		s.wrongAt(at, "%s is an anchor (anchors are not read: write the value out where it is needed)", shown("&", node.Anchor))
		return
	case node.Style&yaml.TaggedStyle != 0:
		s.wrongAt(at, "%s is a tag (tags are not read: each key has its own type)", shown("", node.Tag))
		return
	}
	for i, child := range node.Content {
		ofSecret := node.Kind == yaml.MappingNode && i%2 == 1 && isSecretKey(node.Content[i-1].Value)
		s.plain(child, secret || ofSecret)
	}
}

var syntaxText = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntaxFault puts the parser's words for a syntax error at their line, with that line's text.
func syntaxFault(data []byte, err error) (at mark, format string, text, why, hint any) {
	number, message := 1, err.Error()
	if parts := syntaxText.FindStringSubmatch(message); parts != nil {
		message = parts[2]
		if parts[1] != "" {
			number, _ = strconv.Atoi(parts[1])
			// The parser counts from 0 where its scanner counts from 1, and both print the same words before the number.
			if strings.HasPrefix(message, "did not find expected") {
				number++
			}
		}
	}
	unknown, isAlias := strings.CutPrefix(message, "unknown anchor '")
	if isAlias {
		name, _, _ := strings.Cut(unknown, "'")
		// The parser gives no line: the first one that has the alias outside a comment is it.
		if found := regexp.MustCompile(`(?m)^[^#\n]*\*` + regexp.QuoteMeta(name)).FindIndex(data); found != nil {
			number = 1 + bytes.Count(data[:found[0]], []byte("\n"))
		}
	}
	lines := strings.Split(string(data), "\n")
	number = min(max(number, 1), len(lines))
	for number > 1 && strings.TrimSpace(lines[number-1]) == "" {
		number-- // "unexpected end" is reported on the empty line after the last
	}
	line := strings.TrimRight(lines[number-1], "\r")
	column := 1 + len(line) - len(strings.TrimLeft(line, " \t"))
	hint = "check the indentation, the quotes and the brackets here and just above"
	switch {
	case strings.Contains(message, "tab"), strings.HasPrefix(strings.TrimLeft(line, " "), "\t"):
		hint = "indent with spaces"
	case isAlias:
		hint = "aliases are not read: write the value out"
	case strings.Contains(string(data), "${") && strings.Contains(message, "',' or"):
		hint = `inside { } and [ ] a variable is written in quotes: "${NAME}"`
	case strings.Contains(message, "mapping values"):
		hint = `a value that contains ": " is written in quotes`
	}
	shown, secret := withoutSecret(lines[:number])
	if secret && isAlias {
		message = "unknown anchor referenced"
	}
	return mark{number, column}, "%s is not YAML: %s (%s)", quote(shown), message, hint
}

// badByte finds the first byte that no YAML text has.
func badByte(data []byte) (at mark, what string) {
	at = mark{1, 1}
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return at, fmt.Sprintf("byte 0x%02x is not UTF-8 (save the file as UTF-8)", rest[0])
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r >= 0x7f && r < 0xa0 && r != 0x85, r == 0xfffe, r == 0xffff:
			return at, fmt.Sprintf("control character 0x%02x stands in the file (take it out)", r)
		}
		rest = rest[size:]
		at.column++
		if r == '\n' {
			at = mark{at.line + 1, 1}
		}
	}
	return at, ""
}

// quote shows offending text on one line, cut where it would hide the sentence around it, a URL without its password.
func quote(text string) string {
	const shown = 80
	text = withoutUser(text)
	if len(text) > shown {
		cut := shown
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return strconv.Quote(text)
}
