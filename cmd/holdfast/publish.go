package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"

	"holdfast/holds"
)

const publishUsage = `publish one event

  holdfast publish CHANNEL [DATA] [--event NAME] [-c config.yaml | --url ADDRESS] [--key KEY]
                   [--ca FILE] [--cert FILE --cert-key FILE]

Without DATA the data is read from standard input, less one newline at its end. Printed are the event's id
and how many holds it reached.

`

// publishCommand publishes one event: exit 0 if it was taken.
func publishCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("publish")
	event := flags.String("event", "", "the event's `name`")
	address := flags.String("url", "", "the publish `address` of the Holdfast to publish to, instead of a file")
	key := flags.String("key", "", "a key of publish.keys")
	over := newClientTLS(flags)
	file := flags.StringP("config", "c", "", "the configuration `file` of the Holdfast to publish to")
	if done, code := parseFlagsAnd(flags, args, 2, publishUsage, stdout, stderr); done {
		return code
	}
	if flags.NArg() == 0 {
		return usageError(stderr, "publish needs a channel: holdfast publish CHANNEL [DATA]")
	}
	if err := holds.CheckChannel(flags.Arg(0)); err != nil {
		return usageError(stderr, fmt.Sprintf("channel %q: %v", flags.Arg(0), err))
	}
	data := []byte(flags.Arg(1))
	if flags.NArg() == 1 {
		var err error
		if data, err = io.ReadAll(io.LimitReader(stdin, holds.MaxData+1)); err != nil {
			fmt.Fprintln(stderr, "holdfast: standard input cannot be read:", err)
			return exitFailed
		}
		data = bytes.TrimSuffix(data, []byte("\n")) // which echo and editors add
	}
	c, code := findControl(*file, *address, *key, own{
		section: "publish", flag: "--url", verb: "publish to", of: func(c *fileConfig) keyedListener { return c.Publish },
		usual: "127.0.0.1:5561",
	}, over, stderr)
	if c == nil {
		return code
	}
	call := struct {
		Channel string  `json:"channel"`
		Data    *string `json:"data,omitempty"`
		Base64  []byte  `json:"base64,omitempty"`
		Event   string  `json:"event,omitempty"`
	}{Channel: flags.Arg(0), Event: *event}
	if text := string(data); utf8.Valid(data) {
		call.Data = &text
	} else {
		call.Base64 = data
	}
	return c.publish(call, stdout, stderr)
}

// publish makes the call and prints what came of it.
func (c *control) publish(call any, stdout, stderr io.Writer) int {
	body, err := json.Marshal(call)
	if err != nil {
		panic(err)
	}
	status, answer, err := c.send(http.MethodPost, "/publish", body)
	switch {
	case err != nil:
		return c.unreachable(stderr, err)
	case status != http.StatusOK:
		return refused(stderr, answer)
	}
	var taken struct {
		ID      json.Number `json:"id"`
		Reached int         `json:"reached"`
	}
	if err := json.Unmarshal(answer, &taken); err != nil {
		fmt.Fprintf(stderr, "holdfast: %s answered what no Holdfast does (%v); name the address of publish.listen\n", c.base, err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "id %s reached %d\n", taken.ID, taken.Reached)
	return exitOK
}
