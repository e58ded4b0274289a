package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// site is a peer that runs, in front of an app of its own.
type site struct {
	app             *app
	listen, publish string
}

// testCase is one thing to be seen of both peers.
type testCase struct {
	name string
	// why is the reason of a difference that is meant; "" where there should be none.
	why string
	// alone: it reaches into other cases, and is played after them.
	alone bool
	play  func(*play)
}

// play is one case with one peer. In texts $c is the case's channel and $p its
// path.
type play struct {
	*site
	name string
	link atomic.Bool // next links are answered as the case says

	mu       sync.Mutex
	requests []request
	clients  []closer
	lines    []string
}

type closer interface{ close() }

// note adds a line to what the peer did.
func (p *play) note(format string, values ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf(format, values...)
	for _, own := range [][2]string{{p.listen, "LISTEN"}, {p.app.addr(), "APP"}} {
		line = strings.ReplaceAll(line, own[0], own[1])
	}
	p.lines = append(p.lines, line)
}

func (p *play) noted() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines
}

// text fills in what stands for something.
func (p *play) text(s string) string {
	return strings.NewReplacer("$c", p.name, "$p", "/"+p.name+"/", "$h", p.listen, "$a", p.app.addr()).Replace(s)
}

// view sets what the app answers under the case's path, from now on.
func (p *play) view(v view) {
	p.app.set(p.name, func(r request) string {
		p.mu.Lock()
		p.requests = append(p.requests, r)
		p.mu.Unlock()
		return p.text(v(r))
	})
}

// says lets the app answer always the same.
func (p *play) says(text string) {
	p.view(func(request) string { return text })
}

// seen is what the app was asked so far.
func (p *play) seen() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// asked waits until the app was asked n times.
func (p *play) asked(n int, within time.Duration) bool {
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if len(p.seen()) >= n {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// get asks for a path of the case; fields are lines.
func (p *play) get(path string, fields ...string) *client {
	return p.send("GET", path, strings.Join(fields, "\n"), "")
}

func (p *play) send(method, path, fields, body string) *client {
	var b strings.Builder
	fmt.Fprintf(&b, "%s $p%s HTTP/1.1\r\nHost: $h\r\n", method, path)
	for line := range strings.SplitSeq(fields, "\n") {
		if line != "" {
			b.WriteString(line + "\r\n")
		}
	}
	if body != "" || method == "POST" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	c := send(p.listen, p.text(b.String()+"\r\n")+body)
	p.keep(c)
	return c
}

func (p *play) keep(c closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients = append(p.clients, c)
}

// key signs Grip-Sig and, as libraries send it, allows publishing; Pushpin does
// not ask for one.
const key = "changeme"

// call asks the publishing address.
func (p *play) call(method, path, fields, body string) *client {
	body = p.text(body)
	if !strings.Contains(fields, "Authorization:") {
		fields += "Authorization: Bearer " + key + "\r\n"
	}
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s", method, path, p.site.publish, fields, len(body), body)
	c := send(p.site.publish, text)
	p.keep(c)
	return c.over(3 * time.Second)
}

// items publishes items, JSON objects; anything but a success is noted, once.
func (p *play) items(items ...string) {
	c := p.call("POST", "/publish/", "Content-Type: application/json\r\n", `{"items":[`+strings.Join(items, ",")+`]}`)
	if line := fmt.Sprintf("publish: %s", c); !strings.HasPrefix(c.status, "200") && !slices.Contains(p.noted(), line) {
		p.note("%s", line)
	}
}

// stream publishes an item for streams to the case's channel; rest is more of
// its JSON.
func (p *play) stream(content, rest string) {
	if rest != "" {
		rest = "," + rest
	}
	p.items(fmt.Sprintf(`{"channel":"$c","formats":{"http-stream":{"content":%s}}%s}`, quoted(content), rest))
}

// quoted is s as JSON.
func quoted(s string) string {
	text, _ := json.Marshal(s) // a string always can
	return string(text)
}

// play plays a case and returns what was noted.
func (s *site) play(c testCase) []string {
	p := &play{site: s, name: c.name}
	c.play(p)
	for _, client := range p.clients {
		client.close()
	}
	return p.noted()
}
