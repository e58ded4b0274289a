package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// clientTLS is how a command asks over TLS: whom it believes, and what it shows of itself.
type clientTLS struct {
	ca   string // file of the CAs that are believed; "": the system's, or pin
	cert string // file of a certificate to show; "": none
	key  string // file of its key

	// pin is the file of the certificate that the listener serves, of a configuration on this machine: no other is
	// believed, whatever name it is for.
	pin string
}

// newClientTLS reads --ca, --cert and --cert-key.
func newClientTLS(flags *pflag.FlagSet) *clientTLS {
	t := new(clientTLS)
	flags.StringVar(&t.ca, "ca", "", "over TLS: the `file` of the CA that has signed Holdfast's certificate")
	flags.StringVar(&t.cert, "cert", "", "over TLS: the `file` of a certificate to show, where tls.client_ca asks for one")
	flags.StringVar(&t.key, "cert-key", "", "over TLS: the `file` of its key")
	return t
}

// isGiven reports whether a flag of TLS was.
func (t *clientTLS) isGiven() bool { return t.ca != "" || t.cert != "" || t.key != "" }

// problem is what is wrong with the flags.
func (t *clientTLS) problem() string {
	switch {
	case t.cert != "" && t.key == "":
		return "--cert needs its key: give --cert-key"
	case t.key != "" && t.cert == "":
		return "--cert-key needs its certificate: give --cert"
	}
	return ""
}

// of is the same for a listener on this machine.
func (t *clientTLS) of(files *tlsFiles) *clientTLS {
	own := *t
	own.pin = files.Cert
	return &own
}

// errOtherCertificate: who answers serves another certificate than the one in
// the listener's file.
var errOtherCertificate = errors.New("the certificate that it serves is not the one in the file of the configuration, which Holdfast reads every two seconds; if this is another Holdfast, name its CA with --ca")

// config makes what a client's handshake goes by.
func (t *clientTLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case t.ca != "":
		data, err := readPEM(t.ca)
		if err != nil {
			return nil, fmt.Errorf("--ca %q cannot be read: %w", t.ca, reason(err))
		}
		list, err := certificatesIn(data)
		if err != nil {
			return nil, fmt.Errorf("--ca %q %w", t.ca, err)
		}
		config.RootCAs = x509.NewCertPool()
		for _, ca := range list {
			config.RootCAs.AddCert(ca)
		}
	case t.pin != "":
		config.InsecureSkipVerify = true // in its place:
		config.VerifyConnection = t.isPinned
	}
	if t.cert == "" {
		return config, nil
	}
	p, _, wrong := (&tlsFiles{Cert: t.cert, Key: t.key}).read()
	if wrong != nil {
		flag := map[string]string{"cert": "--cert", "key": "--cert-key"}[wrong.key]
		return nil, fmt.Errorf("%s %q %s", flag, wrong.name, wrong.text)
	}
	config.Certificates = []tls.Certificate{p.certificate}
	return config, nil
}

// isPinned compares the certificate that is served with the one in the file, as
// it is now.
func (t *clientTLS) isPinned(state tls.ConnectionState) error {
	data, err := readPEM(t.pin)
	if err != nil {
		return fmt.Errorf("the listener's certificate %q cannot be read: %w", t.pin, reason(err))
	}
	list, err := certificatesIn(data)
	if err != nil {
		return fmt.Errorf("the listener's certificate %q %w", t.pin, err)
	}
	if !bytes.Equal(state.PeerCertificates[0].Raw, list[0].Raw) {
		return errOtherCertificate
	}
	return nil
}

// hintTLS says what to change about an error of TLS, "" for another one.
func hintTLS(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch text := err.Error(); {
	case errors.As(err, &unknown):
		return "name the CA that has signed its certificate with --ca"
	case errors.As(err, &name):
		return "ask by a name that its certificate is for"
	case strings.Contains(text, "tls: certificate required"), strings.Contains(text, "tls: bad certificate"),
		strings.Contains(text, "tls: unknown certificate"), strings.Contains(text, "tls: expired certificate"):
		return "it asks for a certificate that its tls.client_ca has signed: give --cert and --cert-key"
	case strings.Contains(text, "first record does not look like a TLS handshake"), strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "it has no TLS: ask it with http://"
	case errors.Is(err, errOtherCertificate):
		return "see its log for the reason that it keeps the old one"
	}
	return ""
}
