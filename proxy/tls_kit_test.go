package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"runtime"
	"testing"
	"time"

	"go.uber.org/zap"

	"holdfast/proxy"
)

// ---- The kit of the files that begin with tls_.

// serverTLS is what the servers of these tests serve TLS with.
var serverTLS = func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}()

// startSecured serves routes over TLS until the test ends.
func startSecured(t *testing.T, cfg proxy.Config, routes []proxy.Route) (*proxy.Server, string) {
	t.Helper()
	return startSecuredOver(t, "tcp", "127.0.0.1:0", cfg, routes, zap.NewNop())
}

func startSecuredOver(t *testing.T, network, at string, cfg proxy.Config, routes []proxy.Route, log *zap.Logger) (*proxy.Server, string) {
	t.Helper()
	server, err := proxy.New(cfg, routes, log, nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(proxy.Secured(ln, serverTLS)) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		server.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error("serve:", err)
		}
	})
	return server, ln.Addr().String()
}

// errBareFIN: the server's side ended without a close_notify, which crypto/tls
// takes for an end between two records.
var errBareFIN = errors.New("a FIN without a close_notify")

type strictEnd struct{ net.Conn }

func (s strictEnd) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n == 0 && err == io.EOF {
		return 0, errBareFIN
	}
	return n, err
}

// tlsClient is a wireClient over TLS. Its conn is the connection below.
type tlsClient struct {
	*wireClient
	tls *tls.Conn
}

// dialSecured makes the handshake.
func dialSecured(t *testing.T, addr string) *tlsClient {
	t.Helper()
	c := &tlsClient{wireClient: dialWire(t, addr)}
	c.conn.SetDeadline(time.Now().Add(patience))
	c.secure(t, c.conn)
	return c
}

func (c *tlsClient) secure(t *testing.T, nc net.Conn) {
	t.Helper()
	c.tls = tls.Client(strictEnd{nc}, &tls.Config{InsecureSkipVerify: true})
	if err := c.tls.Handshake(); err != nil {
		t.Fatal("handshake:", err)
	}
	c.reader = bufio.NewReader(c.tls)
}

// saySecured is say over TLS.
func saySecured(t *testing.T, addr, text string) *tlsClient {
	t.Helper()
	c := dialSecured(t, addr)
	c.say(t, text)
	return c
}

func (c *tlsClient) say(t *testing.T, text string) {
	t.Helper()
	c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c.tls, text); err != nil {
		t.Fatal(err)
	}
}

// closeNotify says that nothing more comes, and leaves the connection below as
// it is.
func (c *tlsClient) closeNotify(t *testing.T) {
	t.Helper()
	if err := c.tls.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// wantCleanEnd requires a close_notify, and nothing before it.
func (c *tlsClient) wantCleanEnd(t *testing.T) {
	t.Helper()
	c.conn.SetDeadline(time.Now().Add(patience))
	if rest, err := io.ReadAll(c.reader); len(rest) > 0 || err != nil {
		t.Errorf("the connection ends with %.200q, %v; want a close_notify", rest, err)
	}
}

// wantCut requires an end that is none: no close_notify.
func (c *tlsClient) wantCut(t *testing.T) {
	t.Helper()
	c.conn.SetDeadline(time.Now().Add(patience))
	if rest, err := io.ReadAll(c.reader); !isReset(err) {
		t.Errorf("the connection ends with %.200q, %v; want a reset", rest, err)
	}
}

// isRunning reports whether a goroutine is in a function.
func isRunning(function string) bool {
	stacks := make([]byte, 1<<20)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte(function))
}
