package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"holdfast/upstream"
)

// askTimeout is how long the doctor waits for a target's answer.
const askTimeout = 5 * time.Second

// serverKind is an app server as its Server field names it, and what is to be
// known of how it takes connections. A field is the app's to change, so this
// is advice, and most of it is no more than ok.
type serverKind struct {
	begins string // of the Server field, lower case
	says   string
	fix    string // "": there is nothing to change
}

// asyncViews is what a process of an ASGI server runs at once.
const asyncViews = "a process runs async views without a bound, and Django's sync views one at a time (docs/slots.md); a target for each process, and its own streams on a lane of kind: stream"

// serverKinds are told apart by their one answer. docs/lanes.md has the
// reasons; uWSGI names itself nowhere.
var serverKinds = []serverKind{
	{"gunicorn", "gunicorn with threads or greenlets: one process runs --threads requests at once, or --worker-connections with gevent and eventlet; give concurrency that number", ""},
	{"uvicorn", "uvicorn: " + asyncViews, ""},
	{"hypercorn", "hypercorn: " + asyncViews, ""},
	{"daphne", "daphne: " + asyncViews, ""},
	{"waitress", "waitress: one process runs --threads requests at once, 4 unless set; give concurrency that number", ""},
	{"werkzeug", "a development server, which runs a thread for each connection without a bound", "run the app with gunicorn, uvicorn, waitress or another app server in production"},
	{"wsgiserver", "a development server (wsgiref, Django's runserver), which is not made for load", "run the app with gunicorn, uvicorn, waitress or another app server in production"},
	{"nginx", "nginx and not the app itself: which of its processes a request goes to, and where it waits, is then decided behind Holdfast's back", "name the app's own processes as targets"},
	{"openresty", "openresty and not the app itself: which of its processes a request goes to, and where it waits, is then decided behind Holdfast's back", "name the app's own processes as targets"},
	{"envoy", "envoy and not the app itself: which of its processes a request goes to, and where it waits, is then decided behind Holdfast's back", "name the app's own processes as targets"},
}

// syncWorkers is what gunicorn's answer says that closes its connection.
const syncWorkers = "gunicorn's sync workers: each runs one request at a time and takes a connection only when it is free"

// kindOf recognises an app server; "" says: not known.
func kindOf(server string, keepAlive bool) (says, fix string) {
	server = strings.ToLower(server)
	for _, kind := range serverKinds {
		if strings.HasPrefix(server, kind.begins) {
			if kind.begins == "gunicorn" && !keepAlive {
				return syncWorkers, ""
			}
			return kind.says, kind.fix
		}
	}
	return "", ""
}

// targetAnswer is what a target's one answer shows.
type targetAnswer struct {
	keepAlive bool
	unsaid    bool // it closed its connection and had not said so
	server    string
	took      time.Duration
}

// askOnce is a single exchange, as a slot would make it, on a connection of
// its own. The error says how far it came.
func askOnce(target *upstream.Target) (a targetAnswer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	began := time.Now()
	defer func() { a.took = time.Since(began) }()
	conn, err := target.Dial(ctx)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	conn.SetReadDeadline(began.Add(askTimeout))
	if err := conn.Send(target.HealthRequest(false), nil, nil); err != nil {
		return a, err
	}
	res, err := conn.Head(false, nil)
	if err != nil {
		return a, err
	}
	a.keepAlive = res.KeepAlive
	for _, field := range res.Fields {
		if strings.EqualFold(string(field.Name), "server") {
			a.server = string(field.Value)
		}
	}
	status := res.Status
	if a.keepAlive && closesSoon(conn) {
		a.keepAlive, a.unsaid = false, true
	}
	return a, target.JudgeHealth(status)
}

// closesSoon reports whether an app closes its connection behind an answer, of
// which the head was read.
func closesSoon(conn *upstream.Conn) bool {
	var scratch [4 << 10]byte
	for {
		if _, err := conn.Read(scratch[:]); err == io.EOF {
			break
		} else if err != nil {
			return false
		}
	}
	for look := time.Now().Add(silentFor); time.Now().Before(look); <-time.After(silentFor / 20) {
		if !conn.Silent() {
			return true
		}
	}
	return false
}

// silentFor is how long a connection is looked at behind its answer.
const silentFor = 100 * time.Millisecond

// askTarget asks a target once, without waiting for it to come up, and gives
// how many sync workers share it; 0: none, or not to be seen.
func (e *examination) askTarget(name string, target *upstream.Target) (sync int) {
	check := "target " + target.String()
	e.addresses(check, name, target)
	a, err := askOnce(target)
	took := a.took.Round(time.Millisecond)
	switch {
	case errors.Is(err, upstream.ErrUnreachable):
		e.warn(check, "start the app, or correct upstreams."+name+".targets; serve waits for it for start_timeout and then exits 78", "%v", err)
		return 0
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, upstream.ErrInterrupted):
		e.warn(check, "see the app's own log: its workers may all be busy, or still starting", "accepts connections and did not answer within %v", took)
		return 0
	case err != nil:
		e.warn(check, "see the app's own log", "%v", err)
		return 0
	case a.unsaid:
		e.warn(check, "write keepalive: off under upstreams."+name, "answers within %v, and closes each connection without saying so, as uWSGI's http-socket does: requests are sent in vain, and again", took)
	case !a.keepAlive:
		e.ok(check, "answers within %v, and closes each connection after its answer, as gunicorn's sync workers do", took)
	default:
		e.ok(check, "answers within %v, and offers keep-alive: a slot uses its connection again", took)
	}
	e.with(numbers{"took_ms": ms(a.took)})
	if says, fix := kindOf(a.server, a.keepAlive); fix != "" {
		e.warn(check, fix, "is served by %s", says)
	} else if says != "" {
		e.ok(check, "is served by %s", says)
	}
	workers := e.shared(check, name, target.Addr(), a.keepAlive)
	if says, _ := kindOf(a.server, a.keepAlive); says == syncWorkers {
		return workers
	}
	return 0
}

// shownAddresses bounds how many addresses of a name are written out.
const shownAddresses = 16

// addresses says where a target's name leads now; nothing of a target that is
// an address itself, or has none: then the asking says why.
func (e *examination) addresses(check, name string, target *upstream.Target) {
	host, all, _ := target.Addresses(context.Background())
	if len(all) == 0 {
		return
	}
	four := 0 // one of each family is one process, too
	var texts []string
	for _, addr := range all {
		if addr.Is4() {
			four++
		}
		texts = append(texts, addr.String())
	}
	if more := len(texts) - shownAddresses; more > 0 {
		texts = append(texts[:shownAddresses], fmt.Sprintf("%d more", more))
	}
	list := strings.Join(texts, ", ")
	if four > 1 || len(all)-four > 1 {
		e.warn(check, "list each process's own address under upstreams."+name+".targets, or use a name with one address, as a Kubernetes Service has",
			"%s has %d addresses now: %s; they are tried in order until one takes the connection, and load is not spread over them", host, len(all), list)
		return
	}
	e.ok(check, "%s is %s now, and is looked up again while it is in use", host, list)
}

// shared says whether several processes take connections at one target, and
// gives how many there are.
func (e *examination) shared(check, name, address string, keepAlive bool) (workers int) {
	if workers = workersAt(address); workers == 0 {
		return 0
	}
	switch {
	case workers == 1:
		return 1
	case !keepAlive:
		e.ok(check, "%d worker processes share it, and take only what they can run", workers)
	default:
		e.warn(check, "start one process for each target and list them under upstreams."+name+".targets, or use sync workers",
			"%d worker processes share it: the kernel picks one for each connection, however busy it is, so that a fast view can wait behind a slow one while others are free (measured with 4 processes of 2 threads: 1.5 s, the slow view's time, in place of 3 ms)", workers)
	}
	e.with(numbers{"workers": float64(workers)})
	return workers
}

// workersAt is how many processes take connections at a target of this
// machine; 0: it is elsewhere, or its processes are not to be seen.
func workersAt(address string) int {
	if strings.HasPrefix(address, "/") {
		return workersOnSocket(address)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || !isOwnHost(host) {
		return 0 // whoever has that port here is somebody else
	}
	return workersOn(address)
}

// isOwnHost reports whether all addresses of a host are this machine's.
func isOwnHost(host string) bool {
	ips, err := net.LookupIP(host)
	if err != nil || len(ips) == 0 {
		return false
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, ip := range ips {
		here := ip.IsLoopback()
		for _, address := range own {
			prefix, err := netip.ParsePrefix(address.String())
			here = here || err == nil && net.IP(prefix.Addr().AsSlice()).Equal(ip)
		}
		if !here {
			return false
		}
	}
	return true
}

// compareSlots says how the slots that lanes have on an upstream compare with
// what it is said, or was seen (sync workers), to run at once.
func (e *examination) compareSlots(config *fileConfig, name string, sync int) {
	slots, _ := config.slotsOf(name)
	u := config.Upstreams[name]
	check, n := "upstream "+name, numbers{"slots": float64(slots), "targets": float64(len(u.Targets))}
	switch {
	case slots == 0:
		return
	case sync > 0 && slots > sync:
		e.warn(check, "lower the lanes' slots, or start as many workers (-w)",
			"%d slots on %d sync workers: what is beyond them waits at the app's socket, where no lane sees it", slots, sync)
		n["workers"] = float64(sync)
	case u.Concurrency == nil:
		e.ok(check, "%d slots on %d targets; set concurrency to what one process runs at once (gunicorn: --threads) to have the sum checked", slots, len(u.Targets))
	case slots < *u.Concurrency*len(u.Targets):
		e.warn(check, "raise lanes' slots", "%d slots on targets that run %d at once: the rest of the app stays idle", slots, *u.Concurrency*len(u.Targets))
	default:
		e.ok(check, "%d slots, all that its targets run at once", slots)
	}
	if u.Concurrency != nil {
		n["concurrency"] = float64(*u.Concurrency)
	}
	e.with(n)
}
