package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"holdfast/docs"
)

// helpOf runs the help command with these words.
func helpOf(words ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(append([]string{"help"}, words...), &out, &err)
	return code, out.String(), err.String()
}

func TestHelp_PrintsTheSectionOfEachWordAsText(t *testing.T) {
	sections := explanations(docs.Troubleshoot)
	if len(sections) < 40 {
		t.Fatalf("the page has %d sections", len(sections))
	}
	for _, s := range sections {
		code, text, stderr := helpOf(strings.Fields(s.heading)...)
		if code != exitOK || stderr != "" || !strings.HasPrefix(text, s.heading+"\n\n") || !strings.HasSuffix(text, "\n\ndocs/troubleshoot.md#"+s.anchor+"\n") {
			t.Errorf("help %s: exit code %d, %q %.60q", s.heading, code, stderr, text)
		}
		for _, mark := range []string{"**", "](", "`", "\n## "} {
			if strings.Contains(text, mark) {
				t.Errorf("help %s has %q, which is Markdown: %s", s.heading, mark, text)
			}
		}
		for _, way := range []string{s.anchor, strings.ToUpper(s.heading), "#" + s.anchor, "https://docs.example.com/troubleshoot.md#" + s.anchor} {
			if code, same, _ := helpOf(way); code != exitOK || same != text {
				t.Errorf("help %s: exit code %d, another text than that of %s", way, code, s.heading)
			}
		}
	}
	if _, text, _ := helpOf("grant_expired"); !strings.Contains(text, "on error with readyState === 2 ask the app") {
		t.Errorf("the text of code is gone:\n%s", text)
	}
}

func TestHelp_ASectionHasNothingOfTheNext(t *testing.T) {
	got := explanations("# Page\n\nabout all\n\n## one\n\nfirst [two](#two) [a page](x.md)\n### inner\n\n## The last\ntext\n")
	want := []explanation{{"one", "one", "one\n\nfirst [two](#two) [a page](x.md)\n### inner"}, {"The last", "the-last", "The last\ntext"}}
	if !slices.Equal(got, want) {
		t.Errorf("the sections are %q, want %q", got, want)
	}
	if got := plainText("**Look at** `a`, [b](#b) and [c.md](c.md#d)."); got != "Look at a, b and c.md." {
		t.Errorf("as text it is %q", got)
	}
}

func TestHelp_AnUnknownWordIsUsageAndNamesTheNearest(t *testing.T) {
	for word, want := range map[string]string{
		"lanefull": `"lanefull"; nearest: "lane_full"`, "lane_fulll": `nearest: "lane_full"`, "exit 77": `nearest: "exit 78"`,
		"upstream": `nearest: "upstream_down"`, "memory grow": `nearest: "Memory grows"`, "docs/troubleshoot.md#slwo": `nearest: "slow"`,
		"xyzzy": `known here: bad_request, `, "\x1b[2J": `"\x1b[2J"; `, strings.Repeat("x", 10_000): `…"; `, "#": `""; `,
	} {
		code, stdout, stderr := helpOf(strings.Fields(word)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 || len(stderr) > 2000 {
			t.Errorf("help %.40s: exit code %d, %q %q, want %d and %s", word, code, stdout, stderr, exitUsage, want)
		}
	}
}

func TestHelp_WithoutAWordSaysHowItIsCalledAndACommandHasItsFlags(t *testing.T) {
	for _, words := range [][]string{nil, {""}, {"--help"}, {"-h"}} {
		if code, text, stderr := helpOf(words...); code != exitOK || text != usage || stderr != "" {
			t.Errorf("help %q: exit code %d, %q %q", words, code, text, stderr)
		}
	}
	if !strings.Contains(usage, "holdfast help [COMMAND | WORD]") {
		t.Errorf("the usage does not say how a word is explained:\n%s", usage)
	}
	for _, command := range helped {
		code, text, stderr := helpOf(command)
		var want bytes.Buffer
		if run([]string{command, "--help"}, &want, &want) != exitOK || code != exitOK || text != want.String() || stderr != "" || !strings.Contains(text, "--") {
			t.Errorf("help %s: exit code %d, %q %q", command, code, text, stderr)
		}
	}
}

func TestTroubleshoot_ItsListNamesEverySection(t *testing.T) {
	list, _, _ := strings.Cut(docs.Troubleshoot, "\n## ")
	for _, s := range explanations(docs.Troubleshoot) {
		if link := "[" + s.heading + "](#" + s.anchor + ")"; !strings.Contains(strings.Join(strings.Fields(list), " "), link) {
			t.Errorf("the list in front of the page has no %s", link)
		}
	}
}
