package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var placeText = regexp.MustCompile(`^:([0-9]+):([0-9]+): \S`)

// wantPlace holds a sentence without its file name to one line that begins with a place inside the file.
func wantPlace(t *testing.T, sentence string, lines int) {
	t.Helper()
	if strings.ContainsFunc(sentence, isControl) {
		t.Errorf("%q is not one line", sentence)
	}
	if strings.HasSuffix(sentence, "more faults follow (mend these first)") {
		return
	}
	place := placeText.FindStringSubmatch(sentence)
	if place == nil {
		t.Fatalf("%q has no place", sentence)
	}
	line, _ := strconv.Atoi(place[1])
	column, _ := strconv.Atoi(place[2])
	// A null at the end of the file stands on the line after it.
	if line < 1 || line > lines+1 || column < 1 {
		t.Errorf("%q is outside the file of %d lines", sentence, lines)
	}
}

func TestDuration_IsGoSyntaxAndNothingElse(t *testing.T) {
	for in, want := range map[string]string{
		"15s": "15s", "1m30s": "1m30s", "0": "0s", "0s": "0s", "1.5s": "1.5s", "300ms": "300ms",
		"30": "has no unit (write 30s)", "1.5": "has no unit (write 1.5s)", "007": "has no unit (write 007s)",
		"-1s": "is negative where a duration is needed (write 0 or more, as 30s)",
		"-0":  "is negative where a duration is needed (write 0 or more, as 30s)",
		"1d":  "is not a duration: there is no unit d (write 24h)", "30S": "is not a duration: units are lower case (write 30s)",
		"": "is empty where a duration is needed (write 30s)", "1_000ms": "is not a duration (write 500ms, 30s, 1m30s or 2h)",
		"1e3s": "is not a duration (write 500ms, 30s, 1m30s or 2h)", "30 s": "is not a duration (write 500ms, 30s, 1m30s or 2h)",
	} {
		var d Duration
		got := ""
		if err := d.set(in); err != nil {
			got = err.Error()
		} else {
			got = time.Duration(d).String()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestSize_IsBytesInBinaryUnits(t *testing.T) {
	const not = "is not a size (write whole bytes as 65536, or 64KiB, 10MiB or 1GiB)"
	for in, want := range map[string]string{
		"0": "0", "1": "1", "100B": "100", "1024": "1KiB", "64KiB": "64KiB", "10MiB": "10MiB", "1536MiB": "1536MiB", "1GiB": "1GiB",
		"8388607TiB": "8388607TiB", "8388608TiB": "is too large a size to count (write fewer digits)",
		"9223372036854775807": "9223372036854775807", "9223372036854775808": "is too large a size to count (write fewer digits)",
		"1MB": "is not a size: units are KiB, MiB, GiB and TiB (write 1MiB)", "10m": "is not a size: units are KiB, MiB, GiB and TiB (write 10MiB)",
		"64kib": "is not a size: units are KiB, MiB, GiB and TiB (write 64KiB)", "64 KiB": "is not a size: units are KiB, MiB, GiB and TiB (write 64KiB)",
		"1e6": not, "1.5GiB": not, "064KiB": not, "1_000": not, "KiB": not, "0x10": not,
		"-1": "is negative where a size is needed (write 64KiB)", "": "is empty where a size is needed (write 64KiB)",
	} {
		var z Size
		got := ""
		if err := z.set(in); err != nil {
			got = err.Error()
		} else {
			got = z.String()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestExpand_FillsInVariablesAndLeavesOtherDollarsAlone(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "$": "$", "$$": "$", "$$$": "$$", "p$Q$x": "p$Q$x", "^/a$": "^/a$",
		"${NAME}": "web-1", "a${NAME}b${PORT}": "aweb-1b8001", "${EMPTY}": "", "${EMPTY:-d}": "d", "${UNSET:-}": "", "${UNSET:-a:-b}": "a:-b",
		"$${NAME}": "${NAME}", "$$${NAME}": "$web-1", "${UNSET:-$$}": "$", "${NAME:-d}": "web-1",
		"${UNSET}":      "needs the variable UNSET, which is not set (set it, or write ${UNSET:-default})",
		"x${OPEN":       "has a ${ that is never closed (write ${NAME}, or $$ for a dollar)",
		"${1A}":         `names no variable with "${1A}" (write ${NAME} or ${NAME:-default}, or $$ for a dollar)`,
		"${A B}":        `names no variable with "${A B}" (write ${NAME} or ${NAME:-default}, or $$ for a dollar)`,
		"${X:-${NAME}}": `names no variable with "${X:-${NAME}" (write ${NAME} or ${NAME:-default}, or $$ for a dollar)`,
	} {
		got, err := expand(in, testVariables)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// A variable's own ${} is text: what comes out of the environment is not read again.
func TestExpand_IsDoneOnce(t *testing.T) {
	env := func(name string) (string, bool) { return "${" + name + "}$$", true }
	if got, err := expand("${A}", env); err != nil || got != "${A}$$" {
		t.Errorf("becomes %q (%v)", got, err)
	}
}

func TestNearest_IsAWordWithAFewLettersWrong(t *testing.T) {
	known := []string{"queue", "queue_timeout", "slots", "streaming", "warn"}
	for in, want := range map[string]string{
		"queue_timout": "queue_timeout", "queue-timeout": "queue_timeout", "qeuue": "queue", "Slots": "slots", "slot": "slots",
		"warning": "warn", "stream": "streaming", "zebra": "", "": "", "x": "", strings.Repeat("queue", 20): "queue",
	} {
		if got := nearest(in, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", in, got, want)
		}
	}
}

func TestEditDistance_CountsASwapOnce(t *testing.T) {
	for pair, want := range map[[2]string]int{
		{"", ""}: 0, {"", "abc"}: 3, {"abc", ""}: 3, {"kitten", "sitting"}: 3, {"ab", "ba"}: 1, {"lane", "lanes"}: 1, {"abcd", "acbd"}: 1,
	} {
		if got := editDistance(pair[0], pair[1]); got != want {
			t.Errorf("%q to %q is %d, want %d", pair[0], pair[1], got, want)
		}
	}
}
