package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	headWait  = 10 * time.Second // for a stream's head
	firstWait = 5 * time.Second  // for the first bytes behind it
	eventWait = 5 * time.Second  // for an event that was published
	slowEvent = time.Second      // beyond it something is in its way
)

// followed is an event stream as a browser would follow it. One goroutine, its
// own, reads until Close; everything else is its caller's.
type followed struct {
	response  *http.Response
	headAfter time.Duration // from the request to the head
	headAt    time.Time
	arrivals  chan arrival // closed when the stream is over
	ended     error        // why; to be read after that. io.EOF: a whole answer
	tail      []byte       // the last of what was taken
	stop      context.CancelFunc
}

// arrival is what one read gave.
type arrival struct {
	at   time.Time
	data []byte
}

// errNoHead: nothing came of the answer within headWait.
var errNoHead = errors.New("no head came")

// askStream opens a stream. late, if not nil, is called before a stream whose
// head does not come is given up, while its request is still open.
func askStream(client *http.Client, request *http.Request, late func()) (*followed, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var isLate bool
	gaveUp := make(chan struct{})
	timer := time.AfterFunc(headWait, func() {
		defer close(gaveUp)
		isLate = true
		if late != nil {
			late()
		}
		cancel()
	})
	request = request.WithContext(ctx)
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Cache-Control", "no-cache")
	request.Header.Set("User-Agent", "holdfast-doctor")
	began := time.Now()
	response, err := client.Do(request)
	if !timer.Stop() {
		<-gaveUp
	}
	if isLate && err == nil {
		response.Body.Close()
	}
	if isLate {
		return nil, errNoHead
	}
	if err != nil {
		cancel()
		return nil, withoutAddress(err)
	}
	f := &followed{response: response, headAt: time.Now(), arrivals: make(chan arrival), stop: cancel}
	f.headAfter = f.headAt.Sub(began)
	go f.read(ctx)
	return f, nil
}

// Close ends the stream and its reader.
func (f *followed) Close() {
	f.stop()
	f.response.Body.Close()
	for range f.arrivals {
	}
}

// read hands out what comes until the stream is over.
func (f *followed) read(ctx context.Context) {
	defer close(f.arrivals)
	buf := make([]byte, 16<<10)
	for {
		n, err := f.response.Body.Read(buf)
		if n > 0 {
			select {
			case f.arrivals <- arrival{time.Now(), bytes.Clone(buf[:n])}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			f.ended = err
			return
		}
	}
}

// next waits for bytes. came is false where none came in time; over: none
// will, and f.ended says why.
func (f *followed) next(wait time.Duration) (a arrival, came, over bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case a, came = <-f.arrivals:
		if !came {
			return a, false, true
		}
		f.tail = append(f.tail, a.data...)
		f.tail = f.tail[max(len(f.tail)-tailBytes, 0):]
		return a, true, false
	case <-timer.C:
		return a, false, false
	}
}

// tailBytes is how much of a stream is kept: more than a read and an event of the doctor's.
const tailBytes = 32 << 10

// await waits until a text has come.
func (f *followed) await(text string, wait time.Duration) (at time.Time, err error) {
	for deadline := time.Now().Add(wait); ; {
		a, came, over := f.next(time.Until(deadline))
		switch {
		case over:
			return at, fmt.Errorf("the stream ended: %w", f.ended)
		case !came:
			return at, errNoEvent
		case bytes.Contains(f.tail, []byte(text)):
			return a.at, nil
		}
	}
}

// errNoEvent: the stream is open, and what was published did not come.
var errNoEvent = errors.New("it did not come")

// endedWord words how a stream ended.
func (f *followed) endedWord() string {
	if errors.Is(f.ended, io.EOF) {
		return "ended"
	}
	return fmt.Sprintf("was cut (%v)", withoutAddress(f.ended))
}

// withoutAddress is an error without the URL, whose query may be a grant.
func withoutAddress(err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		return withURL.Err
	}
	return err
}

// streamClient connects anew for each stream, and decodes nothing. To an
// endpoint, if one is given; config is what TLS goes by.
func streamClient(to *endpoint, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config, DisableCompression: true, DisableKeepAlives: true, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment}
	if to != nil {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: headWait}).DialContext(ctx, to.network, to.address)
		}
	}
	return &http.Client{Transport: transport}
}

// newMark is a text that nobody else publishes, and a channel that nobody else has.
func newMark() string { return "holdfast-doctor-" + rand.Text()[:16] }
