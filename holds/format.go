package holds

import (
	"bytes"
	"errors"
	"fmt"
)

// A template is text with placeholders, as GRIP's filters that rewrite content
// and its format of ids have them: %X and %(argument)X, where X is one letter,
// and %% for a percent sign. In an argument a backslash takes the byte behind
// it as it is, so that ")" and "\" can stand there.

// placeholder is one of a template.
type placeholder struct {
	letter   byte // behind an argument any byte: it is known or it is not
	argument string
	argued   bool   // %(argument)X: an argument is there, an empty one too
	raw      []byte // as it stands in the template, a part of it
}

// What can be wrong with a placeholder, whatever fills it.
var (
	errTemplateCut    = errors.New("it ends within a placeholder; write %% for a percent sign")
	errTemplateLetter = errors.New("a percent sign has no letter behind it; write %% for a percent sign")
	errTemplateLength = fmt.Errorf("it has more than %d bytes when its placeholders are filled; publish less at once", maxExpanded)
)

// errOther is what fill says of a placeholder that is not its own but another
// filter's: it stays as it stands, and nothing is wrong with it.
var errOther = errors.New("the placeholder is another filter's")

// maxExpanded bounds a template whose placeholders are filled, in bytes: text
// of the largest size may double, which is what hexadecimal ids can do to it.
const maxExpanded = 2 * MaxData

// expansion fills the placeholders of one template. It is to be used once.
type expansion struct {
	// fill says what stands in a placeholder's place. What it says is not read
	// for placeholders again.
	fill func(p placeholder) (string, error)
	// lenient: a placeholder that cannot be filled stays as it stands, and so
	// does a percent sign that begins none.
	lenient bool
	// left: lenient, and there was such a one.
	left bool

	// unclosed: no argument that begins from here on has an end. Without it
	// each of many "%(" would be looked through to the template's end.
	unclosed bool
}

// run gives the template filled: the template itself where it has no percent
// sign. The error is fill's, one of placeholders, or errTemplateLength, the
// only one where it is lenient.
func (e *expansion) run(template []byte) ([]byte, error) {
	at := bytes.IndexByte(template, '%')
	if at < 0 && len(template) <= maxExpanded {
		return template, nil
	}
	out := make([]byte, 0, min(len(template), maxExpanded)+64)
	for rest := template; ; at = bytes.IndexByte(rest, '%') {
		if at < 0 {
			at = len(rest)
		}
		if len(out)+at > maxExpanded { // also by what went in last
			return nil, errTemplateLength
		}
		out, rest = append(out, rest[:at]...), rest[at:]
		if len(rest) == 0 {
			return out, nil
		}
		text, used, err := e.next(rest)
		switch {
		case err == nil:
		case err == errOther:
			text = string(rest[:used])
		case e.lenient:
			e.left = true
			text = string(rest[:used])
		default:
			return nil, fmt.Errorf("%w, at %.40q", err, rest)
		}
		out, rest = append(out, text...), rest[used:]
	}
}

// next fills what begins with template's first byte, a percent sign. used is
// how much of the template it is, with an error too: there only the percent
// sign, if no placeholder can be made out.
func (e *expansion) next(template []byte) (text string, used int, err error) {
	if len(template) > 1 && template[1] == '%' {
		return "%", 2, nil
	}
	p, err := e.parse(template)
	if err != nil {
		return "", 1, err
	}
	text, err = e.fill(p)
	return text, len(p.raw), err
}

// parse reads the placeholder at template's begin.
func (e *expansion) parse(template []byte) (p placeholder, err error) {
	switch {
	case len(template) < 2:
		return p, errTemplateCut
	case template[1] != '(':
		p.letter, p.raw = template[1], template[:2]
		if c := p.letter | 0x20; c < 'a' || c > 'z' {
			return p, errTemplateLetter
		}
		return p, nil
	case e.unclosed:
		return p, errTemplateCut
	}
	end, escaped := 2, false
	for ; end < len(template) && template[end] != ')'; end++ {
		if template[end] == '\\' {
			escaped = true
			end++
		}
	}
	if end+1 >= len(template) { // the letter is missing, or more
		e.unclosed = true
		return p, errTemplateCut
	}
	argument := template[2:end]
	if escaped {
		argument = withoutEscapes(argument)
	}
	return placeholder{template[end+1], string(argument), true, template[:end+2]}, nil
}

// withoutEscapes takes the backslashes out of an argument that does not end within
// an escape.
func withoutEscapes(argument []byte) []byte {
	plain := make([]byte, 0, len(argument))
	for i := 0; i < len(argument); i++ {
		if argument[i] == '\\' {
			i++
		}
		plain = append(plain, argument[i])
	}
	return plain
}

// unknown says that a placeholder means nothing here, and what would.
func (p placeholder) unknown(known string) error {
	return fmt.Errorf("a placeholder is unknown; %s and %%%% are known", known)
}
