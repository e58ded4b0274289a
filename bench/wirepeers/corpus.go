package wirepeers

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// testCase is a case of testdata/wire/requests.txt, whose head says how it
// reads, as far as it matters to any proxy.
type testCase struct {
	Name     string
	Kind     string // the first word of the name
	sent     []byte
	end      bool // the client closes its side
	forwards []forward
	refused  bool // behind them
	either   bool // refused or not
	limit    bool // only a limit refuses it, and limits are everyone's own
}

type forward struct {
	method, target string
	body           []byte
	optional       bool
}

// limits are the statuses of refusals for size.
var limits = []string{"413", "414", "431"}

func readCorpus(path string) (cases []*testCase, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	lets := map[string]string{}
	for number, line := range strings.Split(string(text), "\n") {
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "let "):
			name, value, _ := strings.Cut(line[len("let "):], " = ")
			lets[name] = value
		case line[0] != ' ':
			name, _, _ := strings.Cut(line, ": ")
			kind, _, _ := strings.Cut(name, "-")
			cases = append(cases, &testCase{Name: name, Kind: kind})
		default:
			if err := cases[len(cases)-1].readLine(strings.TrimLeft(line, " "), lets); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, number+1, err)
			}
		}
	}
	return cases, nil
}

func (c *testCase) readLine(line string, lets map[string]string) error {
	word, rest, _ := strings.Cut(line, " ")
	var data []byte
	var err error
	if slices.Contains([]string{"|", "forward", "forward?", "body"}, word) {
		if data, err = unescape(rest, lets); err != nil {
			return err
		}
	}
	switch word {
	case "|":
		c.sent = append(c.sent, data...)
	case "end":
		c.end = true
	case "forward", "forward?":
		method, target, _ := strings.Cut(string(data), " ")
		c.forwards = append(c.forwards, forward{method: method, target: target, optional: word == "forward?"})
	case "body":
		c.forwards[len(c.forwards)-1].body = data
	case "refuse":
		c.refused = true
		c.limit = !slices.ContainsFunc(strings.Split(rest, "|"), func(s string) bool { return !slices.Contains(limits, s) })
	case "or-refuse":
		c.either = true
	}
	return nil
}

// unescape resolves \r \n \t \\ \xHH, \(BYTES*N) and \<NAME>.
func unescape(text string, lets map[string]string) (out []byte, err error) {
	var begun []int // where the repetitions under way begin
	for at := 0; at < len(text); at++ {
		if times, skip, ok := repetition(text[at:]); ok && len(begun) > 0 {
			from := begun[len(begun)-1]
			begun = begun[:len(begun)-1]
			out = append(out[:from], bytes.Repeat(bytes.Clone(out[from:]), times)...)
			at += skip - 1
			continue
		}
		if text[at] != '\\' || at+1 == len(text) {
			out = append(out, text[at])
			continue
		}
		at++
		switch text[at] {
		case '(':
			begun = append(begun, len(out))
		case '<':
			name, _, _ := strings.Cut(text[at+1:], ">")
			value, err := unescape(lets[name], lets)
			if err != nil {
				return nil, err
			}
			out = append(out, value...)
			at += len(name) + 1
		case 'x':
			value, err := strconv.ParseUint(text[at+1:min(at+3, len(text))], 16, 8)
			if err != nil {
				return nil, err
			}
			out = append(out, byte(value))
			at += 2
		default:
			plain, err := strconv.Unquote(`"\` + text[at:at+1] + `"`)
			if err != nil {
				return nil, err
			}
			out = append(out, plain...)
		}
	}
	return out, nil
}

// repetition reads *N).
func repetition(text string) (times, skip int, ok bool) {
	digits, found := strings.CutPrefix(text, "*")
	digits, _, closed := strings.Cut(digits, ")")
	times, err := strconv.Atoi(digits)
	return times, len(digits) + 2, found && closed && err == nil
}
