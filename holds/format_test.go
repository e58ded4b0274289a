package holds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// seen is a fill that shows what it was given; x is unknown to it, and o
// another filter's.
func seen(p placeholder) (string, error) {
	switch {
	case p.letter == 'x':
		return "", p.unknown("%s")
	case p.letter == 'o':
		return "", errOther
	case p.argued:
		return fmt.Sprintf("<%q%c>", p.argument, p.letter), nil
	}
	return fmt.Sprintf("<%c>", p.letter), nil
}

func TestExpansion_FillsWhatPlaceholdersStandFor(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{"", ""},
		{"plain (text) \\ I", "plain (text) \\ I"},
		{"%I", "<I>"},
		{"a%Ib%sc", "a<I>b<s>c"},
		{"%I%I", "<I><I>"},
		{"%IX", "<I>X"},
		{"%a%Z", "<a><Z>"},
		{"%%", "%"},
		{"100%% %%I %%%%", "100% %I %%"},
		{"%%%I%%", "%<I>%"},
		{"%(a)I", `<"a"I>`},
		{"%()s", `<""s>`},
		{"%(a%b(c)s", `<"a%b(c"s>`},
		{"%(a%%b)s", `<"a%%b"s>`}, // an argument is no template
		{`%(a\)b)s`, `<"a)b"s>`},
		{`%(a\\)s`, `<"a\\"s>`}, // %q doubles it again
		{`%(\a\%\()s`, `<"a%("s>`},
		{`%(a\\\))s`, `<"a\\)"s>`},
		{"%(a)%", `<"a"%>`}, // any letter may stand behind an argument
		{"%(a) ", `<"a" >`},
		{"%(a))b", `<"a")>b`},
		{"%(\xff\x00)s\xff\x00", `<"\xff\x00"s>` + "\xff\x00"},
		{"é%Ié", "é<I>é"},
		{"%o %(a)o %(\\a%%)o %%o", "%o %(a)o %(\\a%%)o %o"}, // another's: as it stands
	} {
		for _, lenient := range []bool{false, true} {
			e := expansion{fill: seen, lenient: lenient}
			got, err := e.run([]byte(c.template))
			if string(got) != c.want || err != nil || e.left {
				t.Errorf("%q is %q, %v, left %v; want %q", c.template, got, err, e.left, c.want)
			}
		}
	}
}

func TestExpansion_RefusesWhatIsNoPlaceholderOrLeavesItAsItStands(t *testing.T) {
	for _, c := range []struct{ template, says, left string }{
		{"%", "ends within a placeholder", "%"},
		{"%%%", "ends within a placeholder", "%%"},
		{"a%I%", `at "%"`, "a<I>%"},
		{"%(", "ends within a placeholder", "%("},
		{"%(a", "ends within a placeholder", "%(a"},
		{"%(a)", "ends within a placeholder", "%(a)"},
		{`%(a\)`, "ends within a placeholder", `%(a\)`},
		{`%(a\`, "ends within a placeholder", `%(a\`},
		{`%(a\)s`, "ends within a placeholder", `%(a\)s`},
		{"%(a%I%%", "ends within a placeholder", "%(a<I>%"},
		{"%(%(%(a)", "ends within a placeholder", "%(%(%(a)"},
		{"%(%(%(a)%%", "unknown; %s and %% are known", "%(%(%(a)%%"}, // %(…)% and a percent sign
		{"% d", "no letter", "% d"},
		{"%20%I", `no letter behind it; write %% for a percent sign, at "%20%I"`, "%20<I>"},
		{"%-%%", "no letter", "%-%"},
		{"%\x00", "no letter", "%\x00"},
		{"%é", "no letter", "%é"},
		{"%@%[%`%{", "no letter", "%@%[%`%{"}, // beside the letters
		{"%)%%", "no letter", "%)%"},
		{"%x%%", "unknown; %s and %% are known", "%x%"},
		{"%(a%%\\)b)x%%", "unknown", "%(a%%\\)b)x%"},
		{"%I" + strings.Repeat("%y", 9) + "%x" + strings.Repeat("z", 50), `at "%x` + strings.Repeat("z", 38) + `"`,
			"<I>" + strings.Repeat("<y>", 9) + "%x" + strings.Repeat("z", 50)},
	} {
		fill := seen
		if strings.HasPrefix(c.template, "%(%(%(a)%") {
			fill = func(p placeholder) (string, error) { return "", p.unknown("%s") }
		}
		e := expansion{fill: fill}
		got, err := e.run([]byte(c.template))
		if got != nil || err == nil || !strings.Contains(err.Error(), c.says) || hasControl(err.Error()) {
			t.Errorf("%q is %q, %v; want an error that says %q", c.template, got, err, c.says)
		}
		e = expansion{fill: fill, lenient: true}
		got, err = e.run([]byte(c.template))
		if string(got) != c.left || err != nil || !e.left {
			t.Errorf("leniently %q is %q, %v, left %v; want %q", c.template, got, err, e.left, c.left)
		}
	}
}

func TestExpansion_DoesNotReadAgainWhatItPutIn(t *testing.T) {
	e := expansion{fill: func(placeholder) (string, error) { return "%I%%%", nil }}
	if got, err := e.run([]byte("%I-%I")); string(got) != "%I%%%-%I%%%" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestExpansion_OfTextWithoutAPercentSignIsTheTextItself(t *testing.T) {
	text := []byte("nothing to fill")
	e := expansion{}
	got, err := e.run(text)
	if err != nil || len(got) != len(text) || &got[0] != &text[0] {
		t.Errorf("%q, %v", got, err)
	}
}

func TestExpansion_EndsAtItsBound(t *testing.T) {
	thousand := strings.Repeat("x", 1000)
	e := func(lenient bool) *expansion {
		return &expansion{lenient: lenient, fill: func(p placeholder) (string, error) {
			if p.letter == 'o' {
				return "", errOther
			}
			return thousand, nil
		}}
	}
	fits := maxExpanded / 1000
	for _, c := range []struct {
		name, template string
		want           int // -1: too long
	}{
		{"plain text", strings.Repeat("x", maxExpanded), maxExpanded},
		{"plain text and a byte", strings.Repeat("x", maxExpanded+1), -1},
		{"placeholders", strings.Repeat("%t", fits), fits * 1000},
		{"placeholders and one more", strings.Repeat("%t", fits+1), -1},
		{"text behind placeholders", strings.Repeat("%t", fits) + strings.Repeat("y", maxExpanded%1000), maxExpanded},
		{"text behind placeholders and a byte", strings.Repeat("%t", fits) + strings.Repeat("y", maxExpanded%1000+1), -1},
		{"percent signs", strings.Repeat("%%", maxExpanded), maxExpanded},
		{"percent signs and one more", strings.Repeat("%%", maxExpanded+1), -1},
		{"others' placeholders", strings.Repeat("%o", maxExpanded/2+1), -1},
	} {
		for _, lenient := range []bool{false, true} {
			got, err := e(lenient).run([]byte(c.template))
			if c.want < 0 && (got != nil || !errors.Is(err, errTemplateLength)) {
				t.Errorf("%s: %d bytes, %v; want it refused", c.name, len(got), err)
			}
			if c.want >= 0 && (len(got) != c.want || err != nil) {
				t.Errorf("%s: %d bytes, %v; want %d", c.name, len(got), err, c.want)
			}
		}
	}
}

// Looked through to its end at each, so many take a quarter of a minute.
func TestExpansion_LooksOnceForTheEndOfArgumentsThatHaveNone(t *testing.T) {
	for _, tail := range []string{"", ")", `\`, `\)`} {
		template := strings.Repeat("%(", MaxData/8) + tail
		begun := time.Now()
		e := expansion{fill: seen, lenient: true}
		if got, err := e.run([]byte(template)); string(got) != template || err != nil {
			t.Errorf("with %q at its end %d bytes become %d, %v", tail, len(template), len(got), err)
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Fatalf("with %q at its end it took %v", tail, took)
		}
	}
}
