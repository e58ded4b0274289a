package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"

	"holdfast/proxy"
)

// FuzzDoctor_Covers holds covers to Go's ServeMux, whose patterns they are,
// on paths that ServeMux does not clean.
func FuzzDoctor_Covers(f *testing.F) {
	for _, seed := range [][2]string{{"/", "/health"}, {"/ws/", "/ws/message"}, {"/ws/{$}", "/ws/"}, {"/{a}/b", "/x/b"}, {"/{a...}", "/x/b"}, {"/a//b", "/a//b"}, {"/x", "/x/"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, asked string) {
		p, err := proxy.ParsePattern(pattern)
		if err != nil || !strings.HasPrefix(asked, "/") {
			return
		}
		rank, ok := covers(p, asked)
		if ok && (rank == "" || len(rank) > strings.Count(p.Path, "/")) {
			t.Errorf("%q on %q: rank %q", pattern, asked, rank)
		}
		clean := path.Clean(asked)
		if len(clean) > 1 && strings.HasSuffix(asked, "/") {
			clean += "/"
		}
		if p.Method != "" || p.Host != "" || clean != asked || strings.Contains(asked, "%") || strings.Contains(p.Path, "//") {
			return // an empty segment is literal here
		}
		if want, known := served(p.Path, asked); known && want != ok {
			t.Errorf("%q covers %q: %v, ServeMux says %v", pattern, asked, ok, want)
		}
	})
}

// served asks ServeMux; known is false for what it does not take as a pattern.
// Its redirect from /a to /a/ is a match of another path.
func served(pattern, asked string) (ok, known bool) {
	defer func() { recover() }()
	mux := http.NewServeMux()
	mux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: asked}})
	return answer.Code == http.StatusTeapot, true
}
