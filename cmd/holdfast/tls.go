package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"holdfast/proxy"
)

// certificateLook is how often the files of TLS are read again. They are few and small, and what is compared is what is in
// them: so a link that is swapped, as Kubernetes swaps ..data, is seen like a file that is written.
const certificateLook = 2 * time.Second

// certificates are those that a listener serves, and what its files have been since.
type certificates struct {
	// fixed
	key   string // listen, publish.listen or admin.listen
	files tlsFiles
	log   *zap.Logger

	serving atomic.Pointer[servedPair]

	mu     sync.Mutex        // one look at a time; guards what follows
	wrong  [sha256.Size]byte // contents that cannot be served
	looks  int               // that have found them
	warned *x509.Certificate // that soon ends
	ended  *x509.Certificate // that has ended
}

// servedPair is a pair in force.
type servedPair struct {
	*pair
	config *tls.Config
}

// newCertificates reads the files of a listener, which must be right.
func newCertificates(key string, files tlsFiles, log *zap.Logger) (*certificates, error) {
	s := &certificates{key: key, files: files, log: log}
	p, _, wrong := files.read()
	if wrong != nil {
		return nil, wrong
	}
	s.serve(p)
	return s, nil
}

// serve puts a pair in force, for handshakes from now on.
func (s *certificates) serve(p *pair) {
	config := baseTLS()
	config.Certificates = []tls.Certificate{p.certificate}
	if p.clientCA != nil {
		// A session is resumed only if these CAs have signed the certificate that it began with.
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, p.clientCA
	}
	s.serving.Store(&servedPair{p, config})
}

// baseTLS is what every handshake is bound to; the suites are Go's.
func baseTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}

// listen makes a listener's connections TLS ones.
func (s *certificates) listen(ln net.Listener) net.Listener {
	config := baseTLS()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.serving.Load().config, nil }
	return proxy.Secured(ln, config)
}

// names reports whether the certificate in force is for a host: a page whose
// author points another name here does not get past the browser's own check.
func (s *certificates) names(host string) bool {
	return s.serving.Load().certificate.Leaf.VerifyHostname(host) == nil
}

// look reads the files and puts in force what has changed. Files that cannot be
// served leave the old ones in force, which is logged once: when they were the
// same at two looks, since whoever writes a certificate and then its key is
// between the two for a moment.
func (s *certificates) look(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, sum, wrong := s.files.read()
	switch old := s.serving.Load(); {
	case wrong != nil:
		if sum != s.wrong {
			s.wrong, s.looks = sum, 0
		}
		if s.looks++; s.looks == 2 {
			s.log.Error("certificate refused, the old one stays", zap.String("listen", s.key), zap.Error(wrong))
		}
	case p.sum != old.sum:
		s.serve(p)
		s.log.Info("certificate renewed", zap.String("listen", s.key), zap.Time("until", p.certificate.Leaf.NotAfter))
		fallthrough
	default:
		s.looks = 0
	}
	s.tellEnd(s.serving.Load().certificate.Leaf, now)
}

// tellEnd logs once that a certificate soon ends, and once that it has.
func (s *certificates) tellEnd(leaf *x509.Certificate, now time.Time) {
	switch rest := left(leaf, now); {
	case rest < 0 && s.ended != leaf:
		s.ended = leaf
		s.log.Error("certificate expired", zap.String("listen", s.key), zap.Time("until", leaf.NotAfter))
	case rest >= 0 && rest < soon && s.warned != leaf:
		s.warned = leaf
		s.log.Warn("certificate expires soon", zap.String("listen", s.key), zap.Time("until", leaf.NotAfter))
	}
}

// lookAtCertificates looks at the files of every listener.
func (h *holdfast) lookAtCertificates() {
	for _, s := range h.certificates {
		s.look(time.Now())
	}
}

// watchCertificates looks at them again and again, until ended is closed.
func (h *holdfast) watchCertificates(ended <-chan struct{}) {
	ticker := time.NewTicker(certificateLook)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			h.lookAtCertificates()
		case <-ended:
			return
		}
	}
}

// certificatesOf are those of a listener; nil: it has no TLS.
func (h *holdfast) certificatesOf(key string) *certificates {
	for _, s := range h.certificates {
		if s.key == key {
			return s
		}
	}
	return nil
}
