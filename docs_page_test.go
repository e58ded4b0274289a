package holdfast_test

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// A page of the documentation as its tests read it: text, and fenced blocks.
// What a block is follows from its language, and is what a reader takes it for:
//
//	```sh       commands, run in order, all of a page in one shell and one
//	            directory. They fail the page as they would stop a script.
//	            What ends with & goes on to the page's end, as in a terminal
//	            of its own.
//	```text     what the commands right before it write: all of their standard
//	            output or, where there is none of it, of their standard error.
//	            … is whatever stands there, a line of … any number of lines;
//	            ids, names of connections and times are not compared. Of what
//	            goes on in the background these are the next lines: they are
//	            waited for. A second ```text, or the first where the commands
//	            write nothing, is what comes next from the last command in the
//	            background whose output was shown.
//	```python   and any other whose first line is a comment with a file's name
//	            (`# app.py`, `// page.js`, `<!-- page.html -->`): that file,
//	            written where the commands stand.
//	```yaml     a configuration, or a part of one.
//
// A fence without a language is a drawing.

// block is one fenced block.
type block struct {
	lang string
	line int    // of the fence, from 1
	text string // without the fences' indentation
}

// page is what stands in a file.
type page struct {
	path   string
	blocks []block
	prose  string // the text without blocks; as many lines as the file
}

var fence = regexp.MustCompile("^( *)(```+)([^`]*)$")

// parsePage reads a page. A fence that is never closed is an error.
func parsePage(path, text string) (*page, error) {
	p := &page{path: path}
	var prose []string
	var open []string // the parts of the fence that is open
	var body []string
	var at int
	for i, line := range strings.Split(text, "\n") {
		parts := fence.FindStringSubmatch(line)
		switch {
		case open == nil && parts != nil:
			open, body, at = parts, nil, i+1
		case open == nil:
			prose = append(prose, line)
			continue
		case parts != nil && parts[3] == "" && len(parts[2]) >= len(open[2]):
			p.blocks = append(p.blocks, block{strings.TrimSpace(open[3]), at, strings.Join(append(body, ""), "\n")})
			open = nil
		default:
			body = append(body, strings.TrimPrefix(line, open[1]))
		}
		prose = append(prose, "")
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: this block is never closed", path, at)
	}
	p.prose = strings.Join(prose, "\n")
	return p, nil
}

var fileName = regexp.MustCompile(`^(?:#|//|<!--) ([\w-]+(?:/[\w-]+)*\.\w+)(?: -->)?$`)

// file is the name of the file that a block is; "" if it is none.
func (b block) file() string {
	first, _, _ := strings.Cut(b.text, "\n")
	if found := fileName.FindStringSubmatch(first); found != nil && b.lang != "sh" {
		return found[1]
	}
	return ""
}

// languages of blocks. Any other is a mistake, or new and to be thought about:
// ```bash and ```console would be commands that nothing runs.
var languages = map[string]bool{"": true, "sh": true, "text": true, "python": true, "yaml": true, "json": true, "js": true, "html": true, "nginx": true, "ini": true, "dockerfile": true}

// asCommand is how a line of a command looks, in a block that says to be none.
var asCommand = regexp.MustCompile(`(?m)^(\$ |((bin/)?holdfast|curl|make|gunicorn|uvicorn|python3?|pip3?|django-admin|docker|kubectl|systemctl|git|go|export|sudo|apt(-get)?) \S)`)

var asSleep = regexp.MustCompile(`(?m)(^|[;&|(] *|do )sleep `)

// checkBlocks names what nothing would look at.
func (p *page) checkBlocks() (faults []string) {
	for _, b := range p.blocks {
		switch {
		case !languages[b.lang]:
			faults = append(faults, fmt.Sprintf("%s:%d: no test reads ```%s: commands are ```sh, their output is ```text", p.path, b.line, b.lang))
		case b.lang == "sh" && asSleep.MatchString(b.text):
			faults = append(faults, fmt.Sprintf("%s:%d: it sleeps: wait for what is to happen, as curl --retry does", p.path, b.line))
		case (b.lang == "" || b.lang == "text") && asCommand.MatchString(b.text):
			faults = append(faults, fmt.Sprintf("%s:%d: %q is a command that is not run: put it into ```sh, without a prompt", p.path, b.line, strings.TrimSpace(asCommand.FindString(b.text))))
		}
	}
	return faults
}

// slug is the anchor that GitHub gives a heading.
func slug(heading string) string {
	heading = inlineLink.ReplaceAllString(heading, "$1")
	var out strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
		switch {
		case r == ' ':
			out.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			out.WriteRune(r)
		}
	}
	return out.String()
}

var (
	headingLine = regexp.MustCompile(`(?m)^#{1,6} +(.+?)(?: +#+)?$`)
	inlineLink  = regexp.MustCompile(`!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]*(?:\([^()\s]*\))?)(?: "[^"]*")?\)`)
	inlineCode  = regexp.MustCompile("(``+).*?(``+)|`[^`\n]*`")
)

// anchors are those of the page's headings.
func (p *page) anchors() map[string]bool {
	found := map[string]bool{}
	for _, heading := range headingLine.FindAllStringSubmatch(p.prose, -1) {
		name := slug(heading[1])
		for n := 1; found[name]; n++ {
			name = fmt.Sprintf("%s-%d", slug(heading[1]), n)
		}
		found[name] = true
	}
	return found
}

// link is one link of a page's text.
type link struct {
	target string
	line   int
}

// links are all links outside of code.
func (p *page) links() (found []link) {
	for i, line := range strings.Split(p.prose, "\n") {
		for _, parts := range inlineLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, "`code`"), -1) {
			found = append(found, link{parts[2], i + 1})
			for _, inner := range inlineLink.FindAllStringSubmatch(parts[1], -1) { // an image that is a link
				found = append(found, link{inner[2], i + 1})
			}
		}
	}
	return found
}
