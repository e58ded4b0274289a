package proxy

import (
	"fmt"
	"net/http"
	"strings"
)

// docsAt is where the documentation is read, a path or an address, as it was
// built: -ldflags "-X holdfast/proxy.docsAt=https://example.com/docs".
var docsAt = "docs"

// explanations is the page that has a section for each reason.
var explanations = pageIn(docsAt)

// inURI are the bytes that stand in a URI as they are (RFC 3986 §2.2, §2.3), but
// for the # of the fragment, which is ours.
const inURI = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?[]@!$&'()*+,;="

// pageIn is the page as a URI reference, up to a fragment. What cannot stand in
// one is percent-encoded, whatever it was built with.
func pageIn(docs string) string {
	if docs != "" && !strings.HasSuffix(docs, "/") {
		docs += "/"
	}
	var page strings.Builder
	for i, c := range []byte(docs) {
		if strings.IndexByte(inURI, c) >= 0 || c == '%' && isEscape(docs[i:]) {
			page.WriteByte(c)
		} else {
			fmt.Fprintf(&page, "%%%02X", c)
		}
	}
	return page.String() + "troubleshoot.md"
}

// isEscape reports whether s begins with a percent sign and two hex digits.
func isEscape(s string) bool {
	if len(s) < 3 {
		return false
	}
	_, ok := unhex(s[1], s[2])
	return ok
}

// Explained is where the documentation explains a word, as a URI reference: of a
// reason it is the type of the problem (RFC 9457 §3.1.1 allows a relative one).
func Explained(word string) string { return explanations + "#" + word }

// problem is RFC 9457's object, with our reason.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// problem is what the body says of a fault. word is its reason there.
func (f *fault) problem(word string) problem {
	status := statusOf[f.reason]
	return problem{Explained(f.reason), http.StatusText(status), status, word, f.text}
}
