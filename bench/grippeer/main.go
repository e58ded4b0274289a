// Grippeer plays GRIP's cases to Pushpin and to Holdfast, each in front of a
// scripted app of its own, and prints what each did.
//
//	go run ./bench/grippeer                  all cases, with both
//	go run ./bench/grippeer -case 'link-.*'  some of them
//	go run ./bench/grippeer -only pushpin    one peer
//	go run ./bench/grippeer -all             what both did where it is the same, too
//
// It builds bin/holdfast from the source it stands in, needs Debian's pushpin
// and zurl, starts everything on free ports of 127.0.0.1 and ends what it
// started. Nothing is measured. Exit 1 if a case differs for which no reason is
// stated, or a peer could not be started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"sync"
	"syscall"

	"holdfast/bench/peer"
)

// atOnce is how many cases are played at once to a peer; most of them wait.
const atOnce = 8

var errDiffers = errors.New("some cases differ, and no reason is stated for it")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pattern := flag.String("case", "", "play the cases whose whole name matches this `pattern`")
	only := flag.String("only", "", "play to this `peer` alone")
	all := flag.Bool("all", false, "print what both did where it is the same, too")
	flag.Parse()
	chosen, err := choose(*pattern)
	if err == nil && flag.NArg() > 0 {
		err = fmt.Errorf("%q: it takes flags only", flag.Arg(0))
	}
	if err == nil {
		err = run(ctx, chosen, *only, *all, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grippeer:", err)
		os.Exit(1)
	}
}

func choose(pattern string) (chosen []testCase, err error) {
	matcher, err := regexp.Compile("^(?:" + pattern + ")$")
	for _, c := range cases() {
		if err == nil && (pattern == "" || matcher.MatchString(c.name)) {
			chosen = append(chosen, c)
		}
	}
	if err == nil && len(chosen) == 0 {
		err = fmt.Errorf("no case matches %q", pattern)
	}
	return chosen, err
}

func run(ctx context.Context, chosen []testCase, only string, all bool, out io.Writer) error {
	bench, err := peer.New(os.Stderr)
	if err != nil {
		return err
	}
	defer bench.Close()
	names := []string{rowPushpin, rowHoldfast}
	if only != "" {
		if !slices.Contains(names, only) {
			return fmt.Errorf("no peer %q; there are pushpin and holdfast", only)
		}
		names = []string{only}
	}
	did := map[string][][]string{}
	for _, name := range names {
		s, err := enter(ctx, bench, name)
		if err != nil {
			return err
		}
		defer s.app.close()
		did[name] = s.playAll(ctx, chosen)
		bench.StopAll()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Fprintln(out)
	bench.Environment().Print(out)
	return report(out, chosen, names, did, all)
}

// playAll plays the cases, few at once, and returns what was noted of each.
func (s *site) playAll(ctx context.Context, chosen []testCase) [][]string {
	noted := make([][]string, len(chosen))
	turns := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, c := range chosen {
		if c.alone {
			continue
		}
		turns <- struct{}{}
		all.Go(func() {
			if ctx.Err() == nil {
				noted[i] = s.play(c)
			}
			<-turns
		})
	}
	all.Wait()
	for i, c := range chosen {
		if c.alone && ctx.Err() == nil {
			noted[i] = s.play(c)
		}
	}
	return noted
}

// report prints a line for each case, and below it what was done where it
// differs.
func report(out io.Writer, chosen []testCase, names []string, did map[string][][]string, all bool) (err error) {
	for i, c := range chosen {
		same := len(names) < 2 || slices.Equal(did[names[0]][i], did[names[1]][i])
		verdict := "same"
		switch {
		case len(names) < 2:
			verdict = ""
		case same && c.why != "":
			verdict = "same, although a reason is stated: " + c.why
		case !same && c.why != "":
			verdict = "differs: " + c.why
		case !same:
			verdict = "DIFFERS"
			err = errDiffers
		}
		fmt.Fprintf(out, "\n%-32s %s\n", c.name, verdict)
		switch {
		case same && (all || len(names) < 2):
			printLines(out, "", did[names[0]][i])
		case !same:
			for _, name := range names {
				printLines(out, name, did[name][i])
			}
		}
	}
	return err
}

func printLines(out io.Writer, name string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(out, "    %-9s %s\n", name, line)
		name = ""
	}
}
