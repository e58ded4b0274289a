package holds

import (
	"bytes"
	"holdfast/internal/http1"
	"iter"
)

// gripParam is one parameter of a value. assigned: it has "=" and a value,
// which may be empty.
type gripParam struct {
	name, value []byte
	assigned    bool
}

// gripParams are a value's parameters, in their order.
type gripParams []gripParam

// get gives the first parameter of a name, which is given in lower case.
func (params gripParams) get(name string) (value string, ok bool) {
	for _, p := range params {
		if http1.EqualFold(p.name, name) {
			return string(p.value), true
		}
	}
	return "", false
}

// gripList gives the values of a list, which are between commas outside of
// double quotes, without the white space around them. Empty ones are skipped.
func gripList(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		from, quoted := 0, false
		for i := 0; i <= len(list); i++ {
			switch {
			case i == len(list) || list[i] == ',' && !quoted:
				if value := http1.TrimSpace(list[from:i]); len(value) > 0 && !yield(value) {
					return
				}
				from = i + 1
			case list[i] == '"':
				quoted = !quoted
			case list[i] == '\\' && quoted && i+1 < len(list):
				i++
			}
		}
	}
}

// parseGripValue reads a value: what is before the first semicolon, as it
// stands, and the parameters behind it.
func parseGripValue(value []byte) (first []byte, params gripParams, ok bool) {
	first, rest, _ := bytes.Cut(value, []byte{';'})
	params, ok = parseGripParams(rest)
	return http1.TrimSpace(first), params, ok
}

// parseGripParams reads name=value and bare names between semicolons. A value
// may be in double quotes, with backslash escapes; nothing but white space may
// follow it then. Empty parameters are skipped, as behind a last semicolon.
func parseGripParams(rest []byte) (params gripParams, ok bool) {
	for len(rest) > 0 {
		end := bytes.IndexAny(rest, "=;")
		if end < 0 {
			end = len(rest)
		}
		p := gripParam{name: http1.TrimSpace(rest[:end]), assigned: end < len(rest) && rest[end] == '='}
		rest = rest[end:]
		if p.assigned {
			if p.value, rest, ok = cutGripParam(rest[1:]); !ok {
				return nil, false
			}
		}
		if len(rest) > 0 {
			rest = rest[1:] // the semicolon
		}
		switch {
		case len(p.name) > 0:
			params = append(params, p)
		case p.assigned:
			return nil, false
		}
	}
	return params, true
}

// cutGripParam cuts a parameter's value off; rest is empty or begins with the
// semicolon behind it.
func cutGripParam(in []byte) (value, rest []byte, ok bool) {
	in = http1.TrimSpace(in)
	if len(in) == 0 || in[0] != '"' {
		end := bytes.IndexByte(in, ';')
		if end < 0 {
			end = len(in)
		}
		return http1.TrimSpace(in[:end]), in[end:], true
	}
	for i := 1; i < len(in); i++ {
		switch in[i] {
		case '"':
			rest = http1.TrimSpace(in[i+1:])
			return value, rest, len(rest) == 0 || rest[0] == ';'
		case '\\':
			if i++; i == len(in) {
				return nil, nil, false
			}
		}
		value = append(value, in[i])
	}
	return nil, nil, false
}
