package proxied

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"holdfast/bench/table"
)

// Case is one kind of request.
type Case struct {
	Name        string
	Title       string
	Path        string // of the upstream
	Upload      bool   // POST 1 MiB in place of GET
	Idle        int    // connections beside, each of which has had one answer
	Connections int    // of the load; 0: what --connections says
	Local       bool   // a route that Holdfast answers itself is a row, too
}

// Cases are all. Those of 1 MiB have fewer connections: 64 of them would be 64 MiB
// under way, and measure memory.
func Cases() []Case {
	return []Case{
		{Name: "small", Title: "A GET and an answer of 14 bytes.", Path: "/", Local: true},
		{Name: "idle-1000", Title: "The same, with 1,000 idle connections beside.", Path: "/", Idle: 1000, Local: true},
		{Name: "answer-16k", Title: "An answer of 16 KiB.", Path: "/k"},
		{Name: "answer-1m", Title: "An answer of 1 MiB.", Path: "/m", Connections: 16},
		{Name: "upload-1m", Title: "A POST of 1 MiB, answered with 14 bytes.", Path: "/", Upload: true, Connections: 16},
	}
}

func caseNames() string {
	var names []string
	for _, c := range Cases() {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

func newTable(c Case, connections int, length time.Duration) *table.Table {
	return &table.Table{
		Benchmark: "proxied", Case: c.Name, First: "proxy", Base: rowHoldfast,
		Title: fmt.Sprintf("%s %d connections, rounds of %g s, one core a proxy.", c.Title, connections, length.Seconds()),
		Columns: []table.Column{
			{Key: "cpu_us", Heading: "CPU µs a request", Decimals: 1, Spread: true, Ratio: true},
			{Key: "requests_per_s", Heading: "requests/s"},
			{Key: "p50_ms", Heading: "p50 ms", Decimals: 2},
			{Key: "p99_ms", Heading: "p99 ms", Decimals: 2},
		},
	}
}

// idleConns opens connections that have had one answer each and are kept. close
// ends them, also those of an error.
func idleConns(address, path string, n int) (closeAll func(), err error) {
	var conns []net.Conn
	closeAll = func() {
		for _, conn := range conns {
			conn.Close()
		}
	}
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return closeAll, fmt.Errorf("idle connection %d: %w", len(conns)+1, err)
		}
		conns = append(conns, conn)
		if err := askOnce(conn, path); err != nil {
			return closeAll, fmt.Errorf("idle connection %d: %w", len(conns), err)
		}
	}
	return closeAll, nil
}

func askOnce(conn net.Conn, path string) error {
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || response.Close {
		return fmt.Errorf("answered %s, to be closed: %v", response.Status, response.Close)
	}
	return nil
}
