package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// pemBytes bounds a file of certificates: a larger one is something else, named by mistake.
const pemBytes = 1 << 20

// soon is how long before its end a certificate is told of.
const soon = 14 * 24 * time.Hour

// pair is what the files of a listener's TLS held when they were read.
type pair struct {
	certificate tls.Certificate // its Leaf is set
	clientCA    *x509.CertPool  // nil: clients are asked for nothing
	sum         [sha256.Size]byte
}

// fileFault is what is wrong with one of the files. The error goes on where the
// sentence's quoted name ends.
type fileFault struct {
	key  string // cert, key or client_ca
	name string
	text string
}

func (f *fileFault) Error() string { return fmt.Sprintf("tls.%s %q %s", f.key, f.name, f.text) }

// read reads the files. sum tells contents apart, also those that are wrong.
func (f *tlsFiles) read() (p *pair, sum [sha256.Size]byte, wrong *fileFault) {
	hash := sha256.New()
	text := make(map[string][]byte)
	for _, file := range []struct{ key, name string }{{"cert", f.Cert}, {"key", f.Key}, {"client_ca", f.ClientCA}} {
		if file.name == "" {
			continue
		}
		data, err := readPEM(file.name)
		if err != nil && wrong == nil {
			wrong = &fileFault{file.key, file.name, fmt.Sprintf("cannot be read%s: %v (write the path of a file in PEM, and let this user read it)", inDirectory(file.name), reason(err))}
		}
		text[file.key] = data
		fmt.Fprintf(hash, "%s %d %v\n%s", file.key, len(data), err, data)
	}
	hash.Sum(sum[:0])
	if wrong != nil {
		return nil, sum, wrong
	}
	p = &pair{sum: sum}
	if p.certificate, wrong = f.parse(text["cert"], text["key"]); wrong != nil {
		return nil, sum, wrong
	}
	if f.ClientCA != "" {
		list, err := certificatesIn(text["client_ca"])
		if err != nil {
			return nil, sum, &fileFault{"client_ca", f.ClientCA, err.Error()}
		}
		p.clientCA = x509.NewCertPool()
		for _, ca := range list {
			p.clientCA.AddCert(ca)
		}
	}
	return p, sum, nil
}

// parse makes a certificate, with its key and those behind it, of two texts.
func (f *tlsFiles) parse(cert, key []byte) (tls.Certificate, *fileFault) {
	list, err := certificatesIn(cert)
	if err != nil {
		return tls.Certificate{}, &fileFault{"cert", f.Cert, err.Error()}
	}
	certificate, err := tls.X509KeyPair(cert, key)
	switch {
	case err == nil:
		certificate.Leaf = list[0]
		return certificate, nil
	case !bytes.Contains(key, []byte("PRIVATE KEY-----")):
		err = errors.New("holds no private key in PEM (write the file that begins with -----BEGIN PRIVATE KEY-----)")
	case bytes.Contains(key, []byte("ENCRYPTED")):
		err = errors.New("is encrypted, and nobody is there to say its password (write it without: openssl pkey -in FILE -out FILE)")
	case strings.Contains(err.Error(), "does not match"):
		err = fmt.Errorf("is not the key of the certificate in %q (write the one that it was made with; the certificate itself is the first in its file)", f.Cert)
	default:
		err = errors.New("holds a private key that cannot be read (write one in PEM of PKCS #8, PKCS #1 or SEC 1)")
	}
	return tls.Certificate{}, &fileFault{"key", f.Key, err.Error()}
}

// certificatesIn parses every certificate of a text in PEM, of which there is one at least.
func certificatesIn(text []byte) (list []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("holds a certificate that cannot be read: number %d (make it anew)", len(list)+1)
		}
		list = append(list, certificate)
	}
	if len(list) == 0 {
		return nil, errors.New("holds no certificate in PEM (write the file that begins with -----BEGIN CERTIFICATE-----)")
	}
	return list, nil
}

func readPEM(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() { // a pipe would be waited for
		return nil, errors.New("it is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(file, pemBytes+1))
	if err == nil && len(data) > pemBytes {
		err = fmt.Errorf("it is larger than %s", Size(pemBytes))
	}
	return data, err
}

// inDirectory says where a relative name was looked for.
func inDirectory(name string) string {
	if filepath.IsAbs(name) {
		return ""
	}
	in, _ := os.Getwd()
	return " in " + in
}

// left is how long a certificate is good for; below 0: it has ended.
func left(certificate *x509.Certificate, now time.Time) time.Duration {
	return certificate.NotAfter.Sub(now)
}

// leftWord words that in days.
func leftWord(certificate *x509.Certificate, now time.Time) string {
	days := int(math.Floor(left(certificate, now).Hours() / 24))
	until := certificate.NotAfter.UTC().Format("2006-01-02 15:04")
	switch {
	case days < 0:
		return fmt.Sprintf("has expired, on %s UTC", until)
	case days == 1:
		return fmt.Sprintf("is good for 1 day, until %s UTC", until)
	}
	return fmt.Sprintf("is good for %d days, until %s UTC", days, until)
}

// certificateFaults names the files of TLS that cannot be served, in the form
// of the other faults. It is asked at the start and at each reload; a file that
// becomes so later leaves the old certificate in force. What can be served, and
// is probably not meant, goes to the warnings.
func (c *fileConfig) certificateFaults() []string {
	asked := *c.source
	asked.faults = nil
	now := time.Now()
	for _, a := range c.securedAddresses() {
		p, _, wrong := a.TLS.read()
		if wrong != nil {
			asked.wrong(a.path+".tls."+wrong.key, "%q %s", wrong.name, wrong.text)
			continue
		}
		at, leaf := a.path+".tls.cert", p.certificate.Leaf
		switch {
		case left(leaf, now) < 0:
			c.odd(at, "%q %s (renew it)", a.TLS.Cert, leftWord(leaf, now))
		case now.Before(leaf.NotBefore):
			c.odd(at, "%q is not good before %s UTC (correct the clock, or wait)", a.TLS.Cert, leaf.NotBefore.UTC().Format("2006-01-02 15:04"))
		}
	}
	return asked.sentences()
}

// odd records a warning about the value at path.
func (c *fileConfig) odd(path, format string, args ...any) {
	c.warnings = append(c.warnings, c.source.sentence(c.source.place(path), c.source.subject(path)+" "+fmt.Sprintf(format, args...)))
}
