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

// controlFlags reads -c, --admin and --key: which Holdfast to ask. code is
// not exitOK where the command line or the file is wrong.
func controlFlags(flags *pflag.FlagSet, args []string, stdout, stderr io.Writer) (c *control, code int) {
	file := flags.StringP("config", "c", "", "the configuration `file` of the Holdfast to ask")
	admin := flags.String("admin", "", "its admin `address`, instead of a file")
	key := flags.String("key", "", "a key of admin.keys")
	if done, code := parseFlags(flags, args, stdout, stderr); done {
		return nil, code
	}
	if *admin == "" {
		*admin = "127.0.0.1:5562"
		if *file == "" {
			*file = os.Getenv("HOLDFAST_CONFIG")
		}
		if *file != "" {
			config, err := loadConfig(*file, os.LookupEnv)
			if err != nil {
				fmt.Fprintln(stderr, err)
				return nil, exitConfig
			}
			if config.Admin.Listen == "" {
				fmt.Fprintln(stderr, "holdfast: admin.listen is off in", *file+"; there is no address to ask")
				return nil, exitConfig
			}
			*admin = config.Admin.Listen
			if *key == "" && len(config.Admin.Keys) > 0 {
				*key = config.Admin.Keys[0]
			}
		}
	}
	return newControl(*admin, *key, "--admin"), exitOK
}

func newControl(admin, key, flag string) *control {
	c := &control{base: "http://" + strings.TrimSuffix(strings.TrimPrefix(admin, "http://"), "/"), key: key, flag: flag}
	transport := &http.Transport{DisableKeepAlives: true}
	if e, err := parseListen(admin); err == nil && e.network == "unix" {
		c.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.address)
		}
	} else if strings.HasPrefix(admin, ":") {
		c.base = "http://127.0.0.1" + admin
	}
	c.client = &http.Client{Transport: transport, Timeout: 10 * time.Second}
	return c
}

// ask sends a request without a body and reads the answer.
func (c *control) ask(method, path string) (status int, body []byte, err error) {
	return c.send(method, path, nil)
}

// send sends a request and reads the answer.
func (c *control) send(method, path string, content []byte) (status int, body []byte, err error) {
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
