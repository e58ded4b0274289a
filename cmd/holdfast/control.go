package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// control is an address of a running Holdfast: its admin's, or its publish API's.
type control struct {
	client *http.Client
	base   string
	key    string
	flag   string // that names its address
}

// controlFlags reads -c, --admin, --key and those of TLS: which Holdfast to ask, and how. code is
// not exitOK where the command line or the file is wrong.
func controlFlags(flags *pflag.FlagSet, args []string, stdout, stderr io.Writer) (c *control, code int) {
	file := flags.StringP("config", "c", "", "the configuration `file` of the Holdfast to ask")
	admin := flags.String("admin", "", "its admin `address`, instead of a file")
	key := flags.String("key", "", "a key of admin.keys")
	over := newClientTLS(flags)
	if done, code := parseFlags(flags, args, stdout, stderr); done {
		return nil, code
	}
	return findControl(*file, *admin, *key, own{
		section: "admin", flag: "--admin", verb: "ask", of: func(c *fileConfig) keyedListener { return c.Admin },
		usual: "127.0.0.1:5562",
	}, over, stderr)
}

// own is one of Holdfast's own listeners, as commands look for it.
type own struct {
	section string
	flag    string // that names its address
	verb    string // what is done there
	usual   string // where it is without a file
	of      func(*fileConfig) keyedListener
}

// findControl finds the Holdfast to ask: by address, else by its file, else
// where one listens that has none.
func findControl(file, address, key string, at own, over *clientTLS, stderr io.Writer) (c *control, code int) {
	if problem := over.problem(); problem != "" {
		return nil, usageError(stderr, problem)
	}
	if file == "" && address == "" {
		file = os.Getenv("HOLDFAST_CONFIG")
	}
	var err error
	switch {
	case address != "":
		c, err = newControl(address, key, at.flag, over, over.isGiven())
	case file != "":
		config, loadErr := loadConfig(file, os.LookupEnv)
		if loadErr != nil {
			fmt.Fprintln(stderr, loadErr)
			return nil, exitConfig
		}
		listener := at.of(config)
		if listener.Listen.Address == "" {
			fmt.Fprintf(stderr, "holdfast: %s.listen is off in %s; there is no address to %s\n", at.section, file, at.verb)
			return nil, exitConfig
		}
		if over.isGiven() && listener.Listen.TLS == nil {
			return nil, usageError(stderr, fmt.Sprintf("--ca, --cert and --cert-key are for TLS, which %s.listen does not have in %s", at.section, file))
		}
		c, err = controlOf(listener, key, at.flag, over)
	default:
		c, err = newControl(at.usual, key, at.flag, over, over.isGiven())
	}
	if err != nil {
		return nil, usageError(stderr, err.Error())
	}
	return c, exitOK
}

// controlOf asks a listener of a configuration on this machine. key "" is the first of its own.
func controlOf(l keyedListener, key, flag string, over *clientTLS) (*control, error) {
	if key == "" {
		key = firstKey(l.Keys)
	}
	if l.Listen.TLS == nil {
		return newControl(l.Listen.Address, key, flag, over, false)
	}
	return newControl(l.Listen.Address, key, flag, over.of(l.Listen.TLS), true)
}

// newControl asks an address, which may be a URL. secure: over TLS, also where the address does not say so.
func newControl(address, key, flag string, over *clientTLS, secure bool) (*control, error) {
	scheme := "http://"
	rest, isHTTPS := strings.CutPrefix(address, "https://")
	if secure = secure || isHTTPS; secure {
		scheme = "https://"
	}
	if plain, isHTTP := strings.CutPrefix(address, "http://"); isHTTP && secure {
		return nil, fmt.Errorf("%s %s has no TLS, and --ca, --cert and --cert-key are for that: write https://%s", flag, quote(address), plain)
	} else if isHTTP {
		rest = plain
	}
	c := &control{base: scheme + strings.TrimSuffix(rest, "/"), key: key, flag: flag}
	transport := &http.Transport{DisableKeepAlives: true}
	if e, err := parseListen(address); err == nil && e.network == "unix" {
		c.base = scheme + "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.address)
		}
	} else if strings.HasPrefix(address, ":") {
		c.base = scheme + "127.0.0.1" + address
	}
	if secure {
		config, err := over.config()
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = config
	}
	c.client = &http.Client{Transport: transport, Timeout: 10 * time.Second}
	return c, nil
}

// ask sends a request without a body and reads the answer.
func (c *control) ask(method, path string) (status int, body []byte, err error) {
	return c.send(method, path, nil)
}

// send sends a request and reads the answer. A Holdfast whose certificate was
// renewed just now may not have read it yet: nothing was sent then, and it is
// asked again for a few seconds.
func (c *control) send(method, path string, content []byte) (status int, body []byte, err error) {
	for end := time.Now().Add(3 * certificateLook); ; {
		status, body, err = c.sendOnce(method, path, content)
		if !errors.Is(err, errOtherCertificate) || time.Now().After(end) {
			return status, body, err
		}
		<-time.After(100 * time.Millisecond)
	}
}

func (c *control) sendOnce(method, path string, content []byte) (status int, body []byte, err error) {
	request, err := http.NewRequest(method, c.base+path, bytes.NewReader(content))
	if err != nil {
		return 0, nil, err
	}
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// unreachable words why there was no answer.
func (c *control) unreachable(stderr io.Writer, err error) int {
	if hint := hintTLS(err); hint != "" {
		fmt.Fprintf(stderr, "holdfast: what answers at %s cannot be asked (%v); %s\n", c.base, withoutAddress(err), hint)
		return exitFailed
	}
	fmt.Fprintf(stderr, "holdfast: no Holdfast answers at %s (%v); start it, or name its address with -c or %s\n", c.base, err, c.flag)
	return exitFailed
}

// refused prints what a Holdfast said instead of doing it.
func refused(stderr io.Writer, body []byte) int {
	var problem struct {
		Reason string `json:"reason"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" {
		problem.Detail = strings.TrimSpace(string(body))
	}
	fmt.Fprintf(stderr, "holdfast: %s %s\n", problem.Reason, problem.Detail)
	return exitFailed
}

// readyCommand: exit 0 if the running Holdfast is ready, 1 if not.
func readyCommand(args []string, stdout, stderr io.Writer) int {
	c, code := controlFlags(newFlags("ready"), args, stdout, stderr)
	if c == nil {
		return code
	}
	status, body, err := c.ask(http.MethodGet, "/ready")
	switch {
	case err != nil:
		return c.unreachable(stderr, err)
	case status != http.StatusOK:
		var report struct {
			Reasons []string `json:"reasons"`
		}
		json.Unmarshal(body, &report)
		fmt.Fprintln(stderr, "holdfast: not ready:", strings.Join(report.Reasons, "; "))
		return exitFailed
	}
	fmt.Fprintln(stdout, "ready")
	return exitOK
}

// reloadCommand: exit 0 if the new configuration is in force.
func reloadCommand(args []string, stdout, stderr io.Writer) int {
	c, code := controlFlags(newFlags("reload"), args, stdout, stderr)
	if c == nil {
		return code
	}
	status, body, err := c.ask(http.MethodPost, "/reload")
	switch {
	case err != nil:
		return c.unreachable(stderr, err)
	case status != http.StatusOK:
		return refused(stderr, body)
	}
	var result struct {
		NeedsRestart []string `json:"needs_restart"`
	}
	json.Unmarshal(body, &result)
	fmt.Fprintln(stdout, "reloaded")
	if len(result.NeedsRestart) > 0 {
		fmt.Fprintln(stdout, "changed in the file, in force after a restart:", strings.Join(result.NeedsRestart, ", "))
	}
	return exitOK
}

// drainCommand: exit 0 once the drain has begun; with --wait, once the
// process has stopped.
func drainCommand(args []string, stdout, stderr io.Writer) int {
	flags := newFlags("drain")
	wait := flags.Bool("wait", false, "return when the process has stopped")
	c, code := controlFlags(flags, args, stdout, stderr)
	if c == nil {
		return code
	}
	status, body, err := c.ask(http.MethodPost, "/drain")
	switch {
	case err != nil:
		return c.unreachable(stderr, err)
	case status != http.StatusAccepted:
		return refused(stderr, body)
	}
	fmt.Fprintln(stdout, "draining")
	if *wait {
		c.awaitEnd()
		fmt.Fprintln(stdout, "stopped")
	}
	return exitOK
}

// awaitEnd returns when nobody listens at the admin address any more.
func (c *control) awaitEnd() {
	for {
		_, _, err := c.ask(http.MethodGet, "/health")
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
}
