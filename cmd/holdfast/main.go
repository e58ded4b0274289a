// Command holdfast is a reverse-proxy sidecar that stands in front of app
// processes as they are. See the project's README and docs/.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"
)

// version is stamped at build time.
var version = "dev"

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitConfig = 78 // EX_CONFIG of sysexits.h
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const usage = `holdfast: lanes and holds in front of an app server

  holdfast [serve] -c config.yaml
  holdfast serve --upstream http://127.0.0.1:8000 [--listen :8080] [--slots 8]
  holdfast doctor -c config.yaml [--json]
  holdfast doctor --url https://example.com/events [--idle 60s] [-c config.yaml --channel CHANNEL]
  holdfast publish CHANNEL [DATA] [--event NAME]   [-c config.yaml | --url ADDRESS] [--key KEY]
  holdfast ready | reload | drain [--wait]   [-c config.yaml | --admin ADDRESS] [--key KEY]
  holdfast bus init   [-c config.yaml | --url URL]
  holdfast version
  holdfast help [COMMAND | WORD]

WORD is one of an answer, of the log or of the metrics (holdfast help lane_full), or a symptom
(holdfast help memory grows): printed is what it means, where to look, and what to change.

-c may be left out where HOLDFAST_CONFIG names the file. Exit codes: 0 clean
stop, 1 could not start, failed, or a second signal, 2 usage, 78 a
configuration that cannot be served.

`

// run is main without the process: what it returns is the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	command := "serve"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	switch command {
	case "serve":
		return serveCommand(args, stdout, stderr)
	case "doctor":
		return doctorCommand(args, stdout, stderr)
	case "ready":
		return readyCommand(args, stdout, stderr)
	case "reload":
		return reloadCommand(args, stdout, stderr)
	case "drain":
		return drainCommand(args, stdout, stderr)
	case "publish":
		return publishCommand(args, os.Stdin, stdout, stderr)
	case "bus":
		return busCommand(args, stdout, stderr)
	case "version":
		fmt.Fprintln(stdout, "holdfast", version)
		return exitOK
	case "help":
		return helpCommand(args, stdout, stderr)
	}
	fmt.Fprintf(stderr, "holdfast: there is no command %q (see holdfast help)\n", command)
	return exitUsage
}

// serveCommand reads the flags of serve, then the configuration, and serves.
func serveCommand(args []string, stdout, stderr io.Writer) int {
	flags := newFlags("serve")
	file := flags.StringP("config", "c", "", "the configuration `file`")
	upstream := flags.String("upstream", "", "serve without a file: the app's `address`")
	listen := flags.StringSlice("listen", nil, "with --upstream: `address` to listen on (default :8080)")
	slots := flags.Int("slots", quickSlots, "with --upstream: how many requests the app runs at once")
	if done, code := parseFlags(flags, args, stdout, stderr); done {
		return code
	}
	var config *fileConfig
	var load func() (*fileConfig, error)
	var err error
	switch {
	case *upstream != "" && *file != "":
		return usageError(stderr, "--upstream serves without a file: give it or -c, not both")
	case *upstream != "":
		config, err = quickConfig(*upstream, *listen, *slots)
	case flags.Changed("listen") || flags.Changed("slots"):
		return usageError(stderr, "--listen and --slots go with --upstream; in a file they are listen and lanes.NAME.slots")
	default:
		if *file == "" {
			*file = os.Getenv("HOLDFAST_CONFIG")
		}
		if *file == "" {
			return usageError(stderr, "no configuration: give -c config.yaml, HOLDFAST_CONFIG, or --upstream http://127.0.0.1:8000")
		}
		load = func() (*fileConfig, error) { return loadServable(*file) }
		config, err = load()
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitConfig
	}
	return serve(config, load, stderr)
}

// loadServable reads a configuration that this version can serve.
func loadServable(file string) (*fileConfig, error) {
	config, err := loadConfig(file, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if missing := slices.Concat(config.notThere(), config.certificateFaults()); len(missing) > 0 {
		return nil, &configError{missing}
	}
	return config, nil
}

func newFlags(command string) *pflag.FlagSet {
	return pflag.NewFlagSet(command, pflag.ContinueOnError)
}

// parseFlags reads a command's flags. done: there is nothing to do but to
// exit with code.
func parseFlags(flags *pflag.FlagSet, args []string, stdout, stderr io.Writer) (done bool, code int) {
	return parseFlagsAnd(flags, args, 0, usage, stdout, stderr)
}

// parseFlagsAnd is parseFlags for a command that takes words beside its flags.
func parseFlagsAnd(flags *pflag.FlagSet, args []string, words int, usage string, stdout, stderr io.Writer) (done bool, code int) {
	flags.SetOutput(io.Discard)
	flags.Usage = func() { fmt.Fprint(stdout, usage, flags.FlagUsages()) }
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return true, exitOK
	} else if err != nil {
		return true, usageError(stderr, err.Error())
	}
	if flags.NArg() > words {
		what := "not a flag"
		if words > 0 {
			what = "one word too many"
		}
		return true, usageError(stderr, fmt.Sprintf("%q is %s", flags.Arg(words), what))
	}
	return false, exitOK
}

func usageError(stderr io.Writer, text string) int {
	fmt.Fprintf(stderr, "holdfast: %s (see holdfast help)\n", text)
	return exitUsage
}
