package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	errNoEnd     = errors.New("has a ${ that is never closed (write ${NAME}, or $$ for a dollar)")
	errNoName    = errors.New("has a ${ that begins no variable (write ${NAME} or ${NAME:-default}, or $$ for a dollar)")
	errUnset     = errors.New("which is not set")
)

// expand replaces ${NAME} and ${NAME:-default} in one scalar, after YAML has been read, so that nothing in a variable
// can be taken for YAML. As in a shell the default stands in for an unset or empty variable. $$ is a dollar; a $
// before anything else is itself, so that "p$Q" and "^/a$" need no care. A default ends at the first }.
func expand(text string, env func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		dollar := strings.IndexByte(text, '$')
		if dollar < 0 || dollar == len(text)-1 {
			out.WriteString(text)
			return out.String(), nil
		}
		out.WriteString(text[:dollar])
		text = text[dollar+1:]
		switch text[0] {
		case '$':
			out.WriteByte('$')
			text = text[1:]
		case '{':
			end := strings.IndexByte(text, '}')
			if end < 0 {
				return "", errNoEnd
			}
			value, err := variable(text[1:end], env)
			if err != nil {
				return "", err
			}
			out.WriteString(value)
			text = text[end+1:]
		default:
			out.WriteByte('$')
		}
	}
}

func variable(inner string, env func(string) (string, bool)) (string, error) {
	name, fallback, hasDefault := strings.Cut(inner, ":-")
	if !variableName.MatchString(name) || strings.Contains(fallback, "${") {
		return "", fmt.Errorf("names no variable with %s (write ${NAME} or ${NAME:-default}, or $$ for a dollar)", quote("${"+inner+"}"))
	}
	value, ok := env(name)
	switch {
	case hasDefault && value == "":
		return strings.ReplaceAll(fallback, "$$", "$"), nil
	case !ok:
		return "", fmt.Errorf("needs the variable %s, %w (set it, or write ${%s:-default})", name, errUnset, name)
	}
	return value, nil
}
