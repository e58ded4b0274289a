package bus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestFigures prints what each engine does on this machine. It asserts no time.
func TestFigures(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b, other := s.apart(t, ""), s.apart(t, "")
		arrived := &stopwatch{at: make(chan time.Time, 1)}
		ended := make(chan error, 1)
		head := stateOf(t, b).Head
		go func() { ended <- other.Follow(t.Context(), head, arrived) }()
		body := [][]byte{make([]byte, 200)}
		var acked, followed []time.Duration
		for range 200 {
			begun := time.Now()
			_, err := b.Publish(t.Context(), body)
			must(t, err)
			acked = append(acked, time.Since(begun))
			followed = append(followed, (<-arrived.at).Sub(begun))
		}
		must(t, other.Close())
		<-ended
		slices.Sort(acked)
		slices.Sort(followed)
		t.Logf("one after the other: acknowledged after %v (p50), %v (p99); at another node's follower after %v, %v", acked[100], acked[198], followed[100], followed[198])

		const publishers, each = 64, 100
		f, _ := followNow(t, b, stateOf(t, b).Head)
		begun := time.Now()
		var all sync.WaitGroup
		for range publishers {
			all.Go(func() {
				for range each {
					if _, err := b.Publish(t.Context(), body); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		took := time.Since(begun)
		f.until(t, "all", func() bool { return len(f.entries) == publishers*each })
		t.Logf("%d publishers at once: %.0f events/s, followed %v after the last", publishers, publishers*each/took.Seconds(), time.Since(begun)-took)
	})
}

// stopwatch says when each entry came.
type stopwatch struct{ at chan time.Time }

func (*stopwatch) Begin(State) {}

func (w *stopwatch) Take(entries []Entry) {
	for range entries {
		w.at <- time.Now()
	}
}

// selfSigned makes a certificate for localhost.
func selfSigned(t *testing.T, dir string) (ca, cert, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	must(t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644))
		return path
	}
	return write("ca.pem", "CERTIFICATE", der), write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", secret)
}
