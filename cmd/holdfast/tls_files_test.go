package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ---- The configuration.

func wantTLS(t *testing.T, c *fileConfig) {
	both := &tlsFiles{Cert: "/etc/tls/tls.crt", Key: "/etc/tls/tls.key", ClientCA: "/etc/tls/ca.crt"}
	wantEqual(t, "listen", c.Listen, addresses{{Address: ":8080"},
		{Address: "unix:/run/tls.sock?mode=0600", TLS: &tlsFiles{Cert: "/etc/tls/tls.crt", Key: "tls.key"}}, {Address: ":8443", TLS: both}})
	wantEqual(t, "publish", c.Publish, keyedListener{Listen: address{Address: ":5561", TLS: both}})
	wantEqual(t, "admin", c.Admin, keyedListener{Listen: address{Address: "127.0.0.1:5562", TLS: &tlsFiles{Cert: "a", Key: "b"}}})
}

// pkcs1 is no key, and looks like one.
const badKey = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"

func TestTLS_FilesThatCannotBeServedAreRefusedByTheirPlace(t *testing.T) {
	ca, other, dir := newCA(t, "ca"), newCA(t, "other"), t.TempDir()
	cert, key := ca.issue(t, wanted{})
	_, another := other.issue(t, wanted{})
	_, bare := ca.issue(t, wanted{bareKey: true})
	encrypted := asPEM("ENCRYPTED PRIVATE KEY", []byte("x"))
	write(t, dir, map[string][]byte{"tls.crt": cert, "tls.key": key, "another.key": another, "bare.key": bare, "ca.crt": ca.pem, "encrypted.key": encrypted,
		"none": []byte("nothing\n"), "bad.crt": asPEM("CERTIFICATE", []byte("x")), "bad.key": []byte(badKey), "large": bytes.Repeat([]byte("x"), pemBytes+1),
		"chain.crt": append(append([]byte("a comment\n"), ca.pem...), cert...)})
	for _, c := range []struct {
		cert, key, ca string
		want          string // "": it is good
	}{
		{"tls.crt", "tls.key", "", ""},
		{"tls.crt", "tls.key", "ca.crt", ""},
		{"missing", "tls.key", "", `cert "DIR/missing" cannot be read: no such file or directory (write the path of a file in PEM, and let this user read it)`},
		{"tls.crt", ".", "", `key "DIR/." cannot be read: it is no regular file (write the path of a file in PEM, and let this user read it)`},
		{"large", "tls.key", "", `cert "DIR/large" cannot be read: it is larger than 1MiB (write the path of a file in PEM, and let this user read it)`},
		{"none", "tls.key", "", `cert "DIR/none" holds no certificate in PEM (write the file that begins with -----BEGIN CERTIFICATE-----)`},
		{"tls.key", "tls.crt", "", `cert "DIR/tls.key" holds no certificate in PEM (write the file that begins with -----BEGIN CERTIFICATE-----)`},
		{"bad.crt", "tls.key", "", `cert "DIR/bad.crt" holds a certificate that cannot be read: number 1 (make it anew)`},
		{"tls.crt", "tls.crt", "", `key "DIR/tls.crt" holds no private key in PEM (write the file that begins with -----BEGIN PRIVATE KEY-----)`},
		{"tls.crt", "bad.key", "", `key "DIR/bad.key" holds a private key that cannot be read (write one in PEM of PKCS #8, PKCS #1 or SEC 1)`},
		{"tls.crt", "encrypted.key", "", `key "DIR/encrypted.key" is encrypted, and nobody is there to say its password (write it without: openssl pkey -in FILE -out FILE)`},
		{"tls.crt", "another.key", "", `key "DIR/another.key" is not the key of the certificate in "DIR/tls.crt" (write the one that it was made with; the certificate itself is the first in its file)`},
		{"tls.crt", "bare.key", "", `key "DIR/bare.key" is not the key of the certificate in "DIR/tls.crt" (write the one that it was made with; the certificate itself is the first in its file)`},
		{"chain.crt", "tls.key", "", `key "DIR/tls.key" is not the key of the certificate in "DIR/chain.crt" (write the one that it was made with; the certificate itself is the first in its file)`},
		{"tls.crt", "tls.key", "tls.key", `client_ca "DIR/tls.key" holds no certificate in PEM (write the file that begins with -----BEGIN CERTIFICATE-----)`},
		{"tls.crt", "tls.key", "missing", `client_ca "DIR/missing" cannot be read: no such file or directory (write the path of a file in PEM, and let this user read it)`},
	} {
		line := fmt.Sprintf("listen: {address: \":8443\", tls: {cert: %[1]s/%[2]s, key: %[1]s/%[3]s", dir, c.cert, c.key)
		if c.ca != "" {
			line += ", client_ca: " + dir + "/" + c.ca
		}
		path := filepath.Join(t.TempDir(), "c.yaml")
		replaceFile(t, path, line+"}}\n"+tlsRoutes)
		if _, err := loadConfig(path, noVariables); err != nil {
			t.Errorf("%s: it is not read: %v", line, err) // who only asks a Holdfast need not have the files
		}
		_, err := loadServable(path)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
			continue
		}
		name, _, _ := strings.Cut(c.want, " ")
		column := strings.Index(line, name+": "+dir) + len(name+": ") + 1
		want := fmt.Sprintf("%s:1:%d: listen.tls.%s", path, column, strings.ReplaceAll(c.want, "DIR", dir))
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n%v\nwant\n%s", line, err, want)
		}
		if code := run([]string{"serve", "-c", path}, io.Discard, io.Discard); code != exitConfig {
			t.Errorf("%s: exit code %d", line, code)
		}
	}
}

func TestTLS_ACertificateOutOfItsTimeIsServedWithAWarning(t *testing.T) {
	ca := newCA(t, "ca")
	for name, w := range map[string]wanted{
		"has expired, on ":   {until: -time.Minute},
		"is not good before": {from: 3 * time.Hour},
		"":                   {},
	} {
		dir := t.TempDir()
		ca.writePair(t, dir, w)
		path := filepath.Join(dir, "c.yaml")
		replaceFile(t, path, fmt.Sprintf("admin: {listen: {address: \"127.0.0.1:0\", tls: %s}}\n", tlsOf(dir, ""))+tlsRoutes)
		c, err := loadServable(path)
		if err != nil {
			t.Fatal(err)
		}
		if name == "" {
			wantEqual(t, "warnings", c.warnings, nil)
		} else if len(c.warnings) != 1 || !strings.HasPrefix(c.warnings[0], path+":1:54: admin.listen.tls.cert \""+dir+"/tls.crt\" "+name) {
			t.Errorf("%s: %q", name, c.warnings)
		}
	}
}

// ---- Renewal.

func TestTLS_ARenewedCertificateIsServedAndOpenConnectionsGoOn(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t, "ca"), t.TempDir()
	first := ca.writePair(t, dir, wanted{})
	s := startSecured(t, dir, "", tlsRoutes)
	conn, err := tls.Dial("tcp", addrOf(s.holdfast), ca.believes())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	ask := func() {
		t.Helper()
		io.WriteString(conn, "GET /fixed HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if line, err := in.ReadString('\n'); line != "HTTP/1.1 200 OK\r\n" {
			t.Fatal(line, err)
		}
		for line := ""; line != "fixed\n"; line, _ = in.ReadString('\n') {
		}
	}
	ask()
	wantServed(t, addrOf(s.holdfast), ca.believes(), first)
	second := ca.writePair(t, dir, wanted{})
	eventually(t, "the new one to be served", func() bool { // by itself
		served, err := servedAt(t, addrOf(s.holdfast), ca.believes())
		return err == nil && bytes.Contains(second, pemBody(served.Raw))
	})
	for _, ln := range []string{s.admin(), s.publishLn.Addr().String()} {
		eventually(t, "it to be served at "+ln, func() bool {
			served, err := servedAt(t, ln, ca.believes())
			return err == nil && bytes.Contains(second, pemBody(served.Raw))
		})
	}
	ask()
	third := ca.writePair(t, dir, wanted{})
	if _, err := s.reload(); err != nil {
		t.Fatal(err)
	}
	wantServed(t, addrOf(s.holdfast), ca.believes(), third) // at once
	ask()
}

// pemBody is what a certificate's PEM has between its first line and its last.
func pemBody(der []byte) []byte {
	lines := bytes.SplitAfter(asPEM("CERTIFICATE", der), []byte("\n"))
	return bytes.Join(lines[1:len(lines)-2], nil)
}

// Kubernetes shows a secret as files that are links through one link, which is
// swapped: no file that is named ever changes.
func TestTLS_ASwappedDirectoryIsANewCertificate(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t, "ca"), t.TempDir()
	swap := func(version string, w wanted) (cert []byte) {
		cert = ca.writePair(t, filepath.Join(dir, version), w)
		next := filepath.Join(dir, "..data_tmp")
		if err := errors.Join(os.Symlink(version, next), os.Rename(next, filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
		return cert
	}
	first := swap("..2026_11_30_1", wanted{})
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := startSecured(t, dir, "", tlsRoutes)
	wantServed(t, addrOf(s.holdfast), ca.believes(), first)
	second := swap("..2026_11_30_2", wanted{})
	os.RemoveAll(filepath.Join(dir, "..2026_11_30_1"))
	s.lookAtCertificates()
	wantServed(t, addrOf(s.holdfast), ca.believes(), second)
}

func TestTLS_FilesThatAreWrongLeaveTheOldCertificateAndAreToldOnce(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t, "ca"), t.TempDir()
	first := ca.writePair(t, dir, wanted{})
	s := startText(t, fmt.Sprintf("listen: {address: \"127.0.0.1:0\", tls: %s}\nadmin: {listen: \"\"}\npublish: {listen: \"\"}\n", tlsOf(dir, ""))+tlsRoutes)
	s.unwatch() // the test looks itself
	told := func() int { return len(logLines(t, s.log.String(), "certificate refused, the old one stays")) }
	look := func(times int) {
		for range times {
			s.lookAtCertificates()
		}
	}
	cert, key := ca.issue(t, wanted{})
	write(t, dir, map[string][]byte{"tls.crt": cert}) // and its key a moment later
	look(1)
	if told() != 0 {
		t.Error("it is told of a certificate whose key is on its way")
	}
	wantServed(t, addrOf(s.holdfast), ca.believes(), first)
	write(t, dir, map[string][]byte{"tls.key": key})
	look(1)
	wantServed(t, addrOf(s.holdfast), ca.believes(), cert)
	for i, broken := range []func(){
		func() { write(t, dir, map[string][]byte{"tls.key": []byte("nothing")}) },
		func() { os.Remove(filepath.Join(dir, "tls.crt")) },
		func() { write(t, dir, map[string][]byte{"tls.crt": nil}) },
	} {
		broken()
		look(5)
		if told() != i+1 {
			t.Errorf("told %d times of %d faults:\n%s", told(), i+1, s.log)
		}
		wantServed(t, addrOf(s.holdfast), ca.believes(), cert)
	}
	lines := logLines(t, s.log.String(), "certificate refused, the old one stays")
	if text := fmt.Sprint(lines[0]["error"]); lines[0]["listen"] != "listen" || lines[0]["level"] != "error" || !strings.Contains(text, dir+"/tls.key") || !strings.Contains(text, "holds no private key") {
		t.Errorf("%v", lines[0])
	}
	if _, err := s.reload(); err == nil || !strings.Contains(err.Error(), "listen.tls.cert") {
		t.Errorf("a reload with such a file: %v", err)
	}
	write(t, dir, map[string][]byte{"tls.crt": cert, "tls.key": key})
	look(3)
	last := ca.writePair(t, dir, wanted{})
	look(3)
	wantServed(t, addrOf(s.holdfast), ca.believes(), last)
	if told() != 3 {
		t.Errorf("told %d times", told())
	}
}

// Who was let in by a CA that is gone is not let in again, by a session neither.
func TestTLS_AClientCAIsReplacedForThoseWhoComeBackToo(t *testing.T) {
	t.Parallel()
	ca, before, after, dir := newCA(t, "ca"), newCA(t, "before"), newCA(t, "after"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	write(t, dir, map[string][]byte{"clients.crt": before.pem})
	s := startSecured(t, dir, dir+"/clients.crt", tlsRoutes)
	config := ca.believes(before.shows(t, wanted{})...)
	config.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	client, next := securedClient(config), securedClient(ca.believes(after.shows(t, wanted{})...))
	url := "https://" + s.publishLn.Addr().String() + "/channels"
	wantStatus := func(who string, status, want int, err error) {
		t.Helper()
		if status != want {
			t.Errorf("%s: %d %v, want %d", who, status, err, want)
		}
	}
	for i := range 3 {
		response, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if resumed := response.TLS.DidResume; response.StatusCode != 200 || resumed != (i > 0) {
			t.Errorf("the first: %d, from a session: %v", response.StatusCode, resumed)
		}
	}
	status, _, err := askURL(next, "GET", url, "")
	wantStatus("the next, too soon", status, 0, err)
	write(t, dir, map[string][]byte{"clients.crt": after.pem})
	s.lookAtCertificates()
	status, _, err = askURL(client, "GET", url, "")
	wantStatus("the first, afterwards", status, 0, err)
	status, _, err = askURL(next, "GET", url, "")
	wantStatus("the next", status, 200, err)
	write(t, dir, map[string][]byte{"clients.crt": append(after.pem, before.pem...)}) // both, while they change
	s.lookAtCertificates()
	status, _, err = askURL(client, "GET", url, "")
	wantStatus("the first, with both", status, 200, err)
}

func TestTLS_TheEndOfACertificateIsToldOnce(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t, "ca"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	s := startText(t, fmt.Sprintf("listen: {address: \"127.0.0.1:0\", tls: %s}\nadmin: {listen: \"\"}\npublish: {listen: \"\"}\n", tlsOf(dir, ""))+tlsRoutes)
	s.unwatch()
	const day = 24 * time.Hour
	for _, at := range []time.Duration{0, 50 * day, 86 * day, 87 * day, 88 * day, 99 * day, 101 * day, 102 * day} {
		s.certificates[0].look(time.Now().Add(at + 2*time.Hour))
	}
	if soon, ended := logLines(t, s.log.String(), "certificate expires soon"), logLines(t, s.log.String(), "certificate expired"); len(soon) != 1 || len(ended) != 1 || soon[0]["level"] != "warn" || ended[0]["level"] != "error" {
		t.Errorf("%v %v", soon, ended)
	}
}

// FuzzTLSFiles: whatever is in the files, they are served or refused.
func FuzzTLSFiles(f *testing.F) {
	ca := newCA(&testing.T{}, "ca")
	cert, key := ca.issue(&testing.T{}, wanted{})
	f.Add(cert, key, ca.pem)
	f.Add(key, cert, []byte("x"))
	f.Add([]byte(badKey), []byte(badKey), []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Add(append(ca.pem, cert...), bytes.Replace(key, []byte("PRIVATE"), []byte("ENCRYPTED PRIVATE"), 2), []byte{})
	f.Fuzz(func(t *testing.T, cert, key, clients []byte) {
		files := &tlsFiles{Cert: "cert", Key: "key"}
		certificate, wrong := files.parse(cert, key)
		if wrong == nil && (certificate.Leaf == nil || len(certificate.Certificate) == 0 || certificate.PrivateKey == nil) {
			t.Errorf("%+v is nothing to serve", certificate)
		}
		if wrong != nil && wrong.text == "" {
			t.Error("refused without a word")
		}
		if list, err := certificatesIn(clients); err == nil && len(list) == 0 {
			t.Error("no certificate, and no fault")
		}
	})
}
