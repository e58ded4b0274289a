package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The kit of the tests of TLS: certificates, and a Holdfast that serves them.

var serials atomic.Int64

// testCA signs certificates.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// wanted is a certificate that is to be made. Zero: for localhost and
// 127.0.0.1, good for a hundred days.
type wanted struct {
	names   []string
	from    time.Duration // from now
	until   time.Duration
	bareKey bool // the key in the form before PKCS #8
}

func newCA(t *testing.T, name string) *testCA {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)}
	ca := &testCA{}
	var der []byte
	der, ca.key = sign(t, template, nil)
	var err error
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.pem = asPEM("CERTIFICATE", der)
	return ca
}

// sign makes a certificate with a key of its own; by nil: it signs itself.
func sign(t *testing.T, template *x509.Certificate, by *testCA) (der []byte, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(serials.Add(1))
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer); err != nil {
		t.Fatal(err)
	}
	return der, key
}

func asPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// issue makes a certificate and its key, in PEM.
func (ca *testCA) issue(t *testing.T, w wanted) (cert, key []byte) {
	t.Helper()
	if w.until == 0 {
		w.until = 100*24*time.Hour + time.Hour
	}
	if w.names == nil {
		w.names = []string{"localhost"}
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: w.names[0]}, DNSNames: w.names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(w.from - time.Hour), NotAfter: time.Now().Add(w.until)}
	der, own := sign(t, template, ca)
	kind, encoded, err := "PRIVATE KEY", []byte(nil), error(nil)
	if w.bareKey {
		kind = "EC PRIVATE KEY"
		encoded, err = x509.MarshalECPrivateKey(own)
	} else {
		encoded, err = x509.MarshalPKCS8PrivateKey(own)
	}
	if err != nil {
		t.Fatal(err)
	}
	return asPEM("CERTIFICATE", der), asPEM(kind, encoded)
}

// shows is a certificate that a client shows.
func (ca *testCA) shows(t *testing.T, w wanted) []tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(ca.issue(t, w))
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{pair}
}

// believes is a client that believes this CA alone, with these certificates.
func (ca *testCA) believes(certificates ...tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return &tls.Config{RootCAs: pool, Certificates: certificates, ServerName: "localhost"}
}

// write puts files into a directory, each as a whole.
func write(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		replaceFile(t, filepath.Join(dir, name), string(data))
	}
}

// writePair issues a certificate into tls.crt and tls.key of a directory.
func (ca *testCA) writePair(t *testing.T, dir string, w wanted) (cert []byte) {
	t.Helper()
	cert, key := ca.issue(t, w)
	write(t, dir, map[string][]byte{"tls.key": key, "tls.crt": cert})
	return cert
}

// tlsOf is the mapping of an address; ca "": it asks for no certificates.
func tlsOf(dir, ca string) string {
	text := fmt.Sprintf("cert: %[1]s/tls.crt, key: %[1]s/tls.key", dir)
	if ca != "" {
		text += ", client_ca: " + ca
	}
	return "{" + text + "}"
}

// startText serves a whole configuration until the test ends.
func startText(t *testing.T, text string) *site {
	t.Helper()
	s := &site{t: t, path: filepath.Join(t.TempDir(), "config.yaml"), log: new(syncBuffer)}
	replaceFile(t, s.path, text)
	return restarted(t, s)
}

// tlsRoutes have a fixed answer, and an app that is not there.
const tlsRoutes = `
upstreams: {app: {targets: ["http://127.0.0.1:1"]}}
lanes: {web: {upstream: app, slots: 1}}
routes: [{match: /, lane: web}, {match: /fixed, respond: {body: "fixed\n"}}]
`

// startSecured has TLS on all three listeners. Only publishing asks for
// certificates, of the CA in clients.
func startSecured(t *testing.T, dir, clients, rest string) *site {
	t.Helper()
	return startText(t, fmt.Sprintf(`
listen: [{address: "127.0.0.1:0", tls: %[1]s}, "127.0.0.1:0"]
admin: {listen: {address: "127.0.0.1:0", tls: %[1]s}}
publish: {listen: {address: "127.0.0.1:0", tls: %[2]s}}
`, tlsOf(dir, ""), tlsOf(dir, clients))+rest)
}

// securedClient asks over TLS, on a connection for each request.
func securedClient(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
}

// askURL makes a request; fields are "Name: value".
func askURL(client *http.Client, method, url, body string, fields ...string) (status int, answer string, err error) {
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		if request.Header.Set(name, value); name == "Host" {
			request.Host = value
		}
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// served is the certificate that an address serves now.
func servedAt(t *testing.T, addr string, config *tls.Config) (*x509.Certificate, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

// wantServed requires a listener to serve a certificate.
func wantServed(t *testing.T, addr string, config *tls.Config, want []byte) {
	t.Helper()
	block, _ := pem.Decode(want)
	if got, err := servedAt(t, addr, config); err != nil || !bytes.Equal(got.Raw, block.Bytes) {
		t.Helper()
		t.Errorf("another certificate is served (%v)", err)
	}
}
