// Command holdfast is a reverse-proxy sidecar that stands in front of app
// processes as they are. See the project's README and docs/.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

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

const usage = `holdfast: lanes in front of an app server

  holdfast [serve] -c config.yaml
  holdfast serve --upstream http://127.0.0.1:8000 [--listen :8080] [--slots 8]
  holdfast version
  holdfast help

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
	case "version":
		fmt.Fprintln(stdout, "holdfast", version)
		return exitOK
	case "help":
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	fmt.Fprintf(stderr, "holdfast: there is no command %q (see holdfast help)\n", command)
	return exitUsage
}

// serveCommand reads the flags of serve, then the configuration, and serves.
func serveCommand(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stdout, usage, flags.FlagUsages()) }
	file := flags.StringP("config", "c", "", "the configuration `file`")
	upstream := flags.String("upstream", "", "serve without a file: the app's `address`")
	listen := flags.StringSlice("listen", nil, "with --upstream: `address` to listen on (default :8080)")
	slots := flags.Int("slots", quickSlots, "with --upstream: how many requests the app runs at once")
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return exitOK
	} else if err != nil {
		return usageError(stderr, err.Error())
	}
	if flags.NArg() > 0 {
		return usageError(stderr, fmt.Sprintf("%q is not a flag", flags.Arg(0)))
	}
	var config *fileConfig
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
		config, err = loadConfig(*file, os.LookupEnv)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitConfig
	}
	return serve(config, stderr)
}

func usageError(stderr io.Writer, text string) int {
	fmt.Fprintf(stderr, "holdfast: %s (see holdfast help)\n", text)
	return exitUsage
}
