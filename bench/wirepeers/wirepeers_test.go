package wirepeers

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestCorpus_IsReadAsItsHeadSays(t *testing.T) {
	cases, err := readCorpus(filepath.Join("..", "..", "testdata", "wire", "requests.txt"))
	if err != nil || len(cases) < 300 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		if len(c.sent) == 0 || len(c.forwards) == 0 && !c.refused {
			t.Errorf("%s: %d bytes, %d forwards, refused %v", c.Name, len(c.sent), len(c.forwards), c.refused)
		}
	}
	got, err := unescape(`\<get>\(a\(bc*2)*2)*\x41\r\n\\`, map[string]string{"get": `GET \(/*3)`})
	if want := "GET ///abcbcabcbc*A\r\n\\"; err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestJudge_ComparesWithWhatTheUpstreamShouldSee(t *testing.T) {
	get, post := forward{method: "GET", target: "/"}, forward{method: "POST", target: "/in", body: []byte("x")}
	for name, c := range map[string]struct {
		refused, either bool
		want, seen      []forward
		row             Row
	}{
		"passed":             {want: []forward{get}, seen: []forward{get}},
		"refused":            {refused: true},
		"refused behind one": {refused: true, want: []forward{get}, seen: []forward{get}},
		"let through":        {refused: true, want: []forward{get}, seen: []forward{get, post}, row: Row{Through: []string{"c"}}},
		"not passed":         {want: []forward{get, post}, seen: []forward{get}, row: Row{Refused: []string{"c"}}},
		"one too many":       {want: []forward{get}, seen: []forward{get, get}, row: Row{Other: []string{"c"}}},
		"another body":       {want: []forward{post}, seen: []forward{{method: "POST", target: "/in"}}, row: Row{Other: []string{"c"}}},
		"either":             {either: true, want: []forward{get}},
		"not needed":         {want: []forward{get, {method: "GET", target: "/b", optional: true}}, seen: []forward{get}},
	} {
		var row Row
		row.judge(&testCase{Name: "c", refused: c.refused, either: c.either, forwards: c.want}, c.seen)
		if fmt.Sprint(row) != fmt.Sprint(c.row) {
			t.Errorf("%s: %+v, want %+v", name, row, c.row)
		}
	}
}

func TestRecorder_ReadsLeniently(t *testing.T) {
	r, err := startRecorder()
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	conn, err := net.Dial("tcp", r.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /a b HTTP/1.1\nContent-Length : 2\n\nhiOPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"+
		"PUT /c HTTP/1.1\r\nTransfer-Encoding: x, chunked\r\n\r\n2\r\nho\r\n0\r\nT: 1\r\n\r\n")
	for in := bufio.NewReader(conn); len(r.seenSoFar()) < 2; {
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	for _, f := range r.take() {
		said = append(said, fmt.Sprintf("%s %s %s", f.method, f.target, f.body))
	}
	if got := strings.Join(said, ", "); got != "POST /a b hi, PUT /c ho" {
		t.Errorf("%s", got)
	}
}

func (r *recorder) seenSoFar() []forward {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}
