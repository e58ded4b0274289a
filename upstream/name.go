package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/tcp"
)

const (
	// lookUpEvery is the default of Config.LookUpEvery. A container that is
	// recreated gets another address under its old name, and its old one may be
	// somebody else's soon after. The system's resolver does not tell how long an
	// answer is good for; CoreDNS gives that of a Kubernetes Service five seconds,
	// and a question in five seconds costs nothing.
	lookUpEvery = 5 * time.Second
	// askEvery is between two look-ups where something failed: a dial on all
	// addresses, or the look-up before.
	askEvery = 500 * time.Millisecond
	// maxTried is how many addresses one dial tries: each has its share of
	// ConnectTimeout, which must stay enough to connect in.
	maxTried = 16
)

// LookUp finds a name's addresses, in the order to try them in. A name that
// does not exist is a *net.DNSError with IsNotFound, or no address.
type LookUp func(ctx context.Context, host string) ([]netip.Addr, error)

// systemLookUp asks as net.Dial does: the hosts file and the name servers.
func systemLookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// hostName is the name of a target's host, and what is known of its addresses.
// Nothing runs between two uses: who finds the answer too old starts one
// look-up, in a goroutine of its own that ends within ConnectTimeout, and
// everybody who needs its answer waits for that one.
type hostName struct {
	// fixed
	host, port string
	cfg        *atomic.Pointer[Config] // the target's

	known atomic.Pointer[addresses] // never nil; read without mu for each reuse of a connection

	mu     sync.Mutex
	asking *question  // the look-up that is out; nil: none
	best   netip.Addr // the address that took a connection last
}

// addresses is what is known of a name at one time. It is never changed.
type addresses struct {
	all   []netip.Addr // each once; empty: there is nothing to dial
	asked time.Time    // when the last look-up ended; zero: there was none
	err   error        // why it found nothing; nil: it did
}

// question is a look-up that is out.
type question struct {
	began time.Time
	done  chan struct{} // closed when known has its outcome
}

// newHostName is the name that an address is reached by; nil where it is an IP
// address or a path.
func newHostName(address Address, cfg *atomic.Pointer[Config]) *hostName {
	host, port, err := net.SplitHostPort(address.Addr)
	if address.Network != "tcp" || err != nil || host == "" {
		return nil
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	n := &hostName{host: host, port: port, cfg: cfg}
	n.known.Store(new(addresses))
	return n
}

// current gives what is known of the name, asking if that is too old; failed:
// all of it was just dialled in vain. It waits where an answer is worth it:
// ConnectTimeout at most, and half of that while there is something to dial,
// counted from the beginning of the look-up, so that a resolver that stays
// silent does not hold up one dial after the other. ctx ends the wait only,
// not the look-up, which others wait for.
func (n *hostName) current(ctx context.Context, failed bool) *addresses {
	cfg, known := n.cfg.Load(), n.known.Load()
	age := time.Since(known.asked)
	due := cfg.LookUpEvery * 4 / 5 // before it is too old: under steady use nobody ever waits
	if failed || known.err != nil {
		due = askEvery
	}
	if age < due {
		return known
	}
	q := n.ask(known)
	if q == nil {
		return n.known.Load()
	}
	patience := cfg.ConnectTimeout
	if len(known.all) > 0 {
		// While the resolver fails nobody waits either: what is known stays in use.
		if old := age >= cfg.LookUpEvery; !old && (!failed || known.err != nil) {
			return known
		}
		patience /= 2
	}
	over := time.NewTimer(time.Until(q.began.Add(patience)))
	defer over.Stop()
	select {
	case <-q.done:
	case <-over.C:
	case <-ctx.Done():
	}
	return n.known.Load()
}

// ask gives the look-up that is out, and begins one if there is none; nil: one
// has ended since known was read.
func (n *hostName) ask(known *addresses) *question {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asking == nil {
		if n.known.Load() != known {
			return nil
		}
		n.asking = &question{began: time.Now(), done: make(chan struct{})}
		go n.lookUp(n.asking)
	}
	return n.asking
}

// lookUp asks, and ends within ConnectTimeout, or twice that where the name is
// not found. What fails takes nothing away: the last addresses stay. A name
// that is not there has lost them, and they may be somebody else's; it is asked
// for once more before that is believed, since with search domains a resolver
// says so too where a server failed for one of them.
func (n *hostName) lookUp(q *question) {
	known := n.known.Load() // nobody else changes it while this look-up is out
	all, err := n.lookUpOnce()
	if isNotFound(err) && len(known.all) > 0 {
		all, err = n.lookUpOnce()
	}
	if err != nil && !isNotFound(err) {
		all = known.all
	}
	n.mu.Lock()
	n.known.Store(&addresses{all: all, asked: time.Now(), err: err})
	n.asking = nil
	n.mu.Unlock()
	close(q.done)
}

func (n *hostName) lookUpOnce() (all []netip.Addr, err error) {
	cfg := n.cfg.Load()
	ctx, cancel := context.WithTimeout(context.Background(), cfg.ConnectTimeout)
	defer cancel()
	found, err := cfg.LookUp(ctx, n.host)
	if err != nil {
		return nil, err
	}
	for _, addr := range found {
		if addr = addr.Unmap(); !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	if len(all) == 0 {
		return nil, &net.DNSError{Err: "no address", Name: n.host, IsNotFound: true}
	}
	return all, nil
}

func isNotFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// dial tries the addresses one after the other until ctx ends, and those that
// a new look-up brings after all have failed. Each has its share of the time,
// so that one where nobody answers leaves some for the others.
func (n *hostName) dial(ctx context.Context) (net.Conn, netip.Addr, error) {
	known := n.current(ctx, false)
	failure := &nameError{host: n.host, lookUp: known.err}
	nc, addr := n.dialAll(ctx, n.ordered(known.all), failure)
	if nc != nil {
		return nc, addr, nil
	}
	if errors.Is(ctx.Err(), context.Canceled) || len(known.all) == 0 || failure.isShortage() {
		return nil, netip.Addr{}, failure
	}
	// Also where no time is left: the next dial has what is found.
	now := n.current(ctx, true)
	failure.lookUp = now.err
	found := slices.DeleteFunc(n.ordered(now.all), func(addr netip.Addr) bool { return slices.Contains(known.all, addr) })
	if nc, addr = n.dialAll(ctx, found, failure); nc != nil {
		return nc, addr, nil
	}
	return nil, netip.Addr{}, failure
}

// dialAll connects to the first of addrs that takes a connection, and adds to
// failure what became of the others.
func (n *hostName) dialAll(ctx context.Context, addrs []netip.Addr, failure *nameError) (net.Conn, netip.Addr) {
	failure.untried += max(0, len(addrs)-maxTried)
	addrs = addrs[:min(len(addrs), maxTried)]
	for i, addr := range addrs {
		nc, err := n.dialOne(ctx, addr, len(addrs)-i)
		if err == nil {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.best = addr
			return nc, addr
		}
		failure.dials = append(failure.dials, err)
	}
	return nil, netip.Addr{}
}

// ordered is a copy of all with the address in front that took a connection
// last.
func (n *hostName) ordered(all []netip.Addr) []netip.Addr {
	all = slices.Clone(all)
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.Index(all, n.best); i > 0 {
		copy(all[1:], all[:i])
		all[0] = n.best
	}
	return all
}

// dialOne connects to one address in its share of the time that ctx leaves for
// it and the others.
func (n *hostName) dialOne(ctx context.Context, addr netip.Addr, left int) (net.Conn, error) {
	if until, ok := ctx.Deadline(); ok {
		share, cancel := context.WithTimeout(ctx, time.Until(until)/time.Duration(left))
		defer cancel()
		ctx = share
	}
	return dialer.DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), n.port))
}

// nameError says what became of each address of a name that was tried, or why
// there is none.
type nameError struct {
	host    string
	dials   []error // of the addresses, in the order in which they were tried
	lookUp  error   // of the last look-up; nil: it did not fail, or has not ended
	untried int     // addresses beyond maxTried
}

func (e *nameError) Error() string {
	var texts []string
	for _, dial := range e.dials {
		texts = append(texts, dial.Error())
	}
	if e.untried > 0 {
		texts = append(texts, fmt.Sprintf("%d more of its addresses were not tried (%d are at most)", e.untried, maxTried))
	}
	switch {
	case e.lookUp != nil:
		texts = append(texts, e.lookUp.Error())
	case len(texts) == 0:
		texts = append(texts, "no answer yet to the question for its addresses")
	}
	return e.host + ": " + strings.Join(texts, "; ")
}

// Unwrap gives the failures to errors.Is and errors.As.
func (e *nameError) Unwrap() []error {
	if e.lookUp == nil {
		return e.dials
	}
	return append(slices.Clone(e.dials), e.lookUp)
}

// isShortage reports whether every address failed for want of something here:
// then nothing is known of the target. One that could be asked is an answer.
func (e *nameError) isShortage() bool {
	return len(e.dials) > 0 && !slices.ContainsFunc(e.dials, func(err error) bool { return !tcp.OutOfResources(err) })
}
