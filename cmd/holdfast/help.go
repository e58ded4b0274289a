package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"holdfast/docs"
	"holdfast/proxy"
)

// helped are the commands with flags of their own to show.
var helped = []string{"serve", "doctor", "publish", "ready", "reload", "drain", "bus"}

// helpCommand prints how the binary is called, a command's flags, or the section
// of docs/troubleshoot.md on a word. Several words are one: a symptom.
func helpCommand(args []string, stdout, stderr io.Writer) int {
	word := strings.Join(args, " ")
	switch {
	case word == "", word[0] == '-':
		fmt.Fprint(stdout, usage)
		return exitOK
	case slices.Contains(helped, word):
		return run([]string{word, "--help"}, stdout, stderr)
	}
	if _, fragment, ok := strings.Cut(word, "#"); ok { // a problem's type, as it stands
		word = fragment
	}
	var known []string
	for _, s := range explanations(docs.Troubleshoot) {
		if s.anchor == anchorOf(word) {
			fmt.Fprintf(stdout, "%s\n\n%s\n", plainText(s.text), proxy.Explained(s.anchor))
			return exitOK
		}
		known = append(known, s.heading)
	}
	return usageError(stderr, fmt.Sprintf("nothing is known of %s; %s", quote(word), meant(word, known)))
}

// explanation is a section of docs/troubleshoot.md.
type explanation struct {
	heading string
	anchor  string // what stands behind the # of its address
	text    string // Markdown, with the heading
}

// explanations are the page's sections, in their order.
func explanations(page string) (sections []explanation) {
	for i, text := range strings.Split("\n"+page, "\n## ") {
		if i > 0 { // before the first there is what is said of the whole page
			heading, _, _ := strings.Cut(text, "\n")
			sections = append(sections, explanation{heading, anchorOf(heading), strings.TrimSpace(text)})
		}
	}
	return sections
}

// anchorOf is what readers of Markdown make of a heading: lower case, blanks as
// hyphens, and nothing but letters, digits, hyphens and low lines.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

var (
	markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	markdownMark = regexp.MustCompile("`|\\*\\*")
)

// plainText takes the marks of Markdown out. Links lead to other sections, whose
// word is their text, and to pages, whose file name is.
func plainText(markdown string) string {
	return markdownMark.ReplaceAllString(markdownLink.ReplaceAllString(markdown, "$1"), "")
}
