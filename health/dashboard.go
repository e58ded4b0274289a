package health

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"sync"
)

// The page's pieces: what they make is one file, which asks for nothing but its
// feed.
//
//go:embed dashboard
var dashboard embed.FS

var (
	styles  = []string{"style.css"}
	scripts = []string{"words.js", "draw.js", "wrong.js", "sections.js", "feed.js"}
)

// Page is the page that shows what a Watch's views say.
type Page struct {
	HTML []byte
	// Policy is its Content-Security-Policy: nothing runs but what the page has,
	// and nothing is asked but where it is from.
	Policy string
	// Name is another one for another page.
	Name string
}

// Dashboard gives the page.
func Dashboard() Page { return assemble() }

var assemble = sync.OnceValue(func() Page {
	style, script := join(styles), join(scripts)
	html := bytes.Replace(piece("index.html"), []byte("/* style */"), style, 1)
	html = bytes.Replace(html, []byte("/* script */"), script, 1)
	sum := sha256.Sum256(html)
	return Page{html, "default-src 'none'; script-src '" + hash(script) + "'; style-src '" + hash(style) + "'; img-src data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'", hex.EncodeToString(sum[:6])}
})

func piece(name string) []byte {
	content, err := dashboard.ReadFile("dashboard/" + name)
	if err != nil {
		panic(err) // it is in the binary
	}
	return content
}

func join(names []string) (all []byte) {
	for _, name := range names {
		all = append(all, piece(name)...)
	}
	return all
}

// hash is how a policy names the one script or style that it lets in.
func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
