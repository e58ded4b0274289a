// Sabotage breaks one guard of the product at a time and requires the test
// named for it to fail: a test that cannot fail proves nothing.
//
//	go run ./testdata/sabotage             all rules
//	go run ./testdata/sabotage -only A,B   some
//	go run ./testdata/sabotage -list       their names, files and tests
//
// Run it from anywhere in the module. No file of the module is written: a
// changed file is laid over its original (go test -overlay). Each test is run
// unchanged first and must pass, so that a failure has one cause.
//
// The exit status is 0 if every rule bites, 1 if one does not or is itself
// wrong (its text does not occur exactly once, what comes of it does not
// compile, its test does not exist or fails by itself), 2 for a bad call.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	atOnce         = 2
	defaultTimeout = time.Minute
	buildTimeout   = 5 * time.Minute // for what comes before a test, and in all
)

func main() {
	rules = slices.Concat(rules, holdRules, gripRules, engineRules, fileRules, doctorRules, nameRules, dashboardRules, busRules, benchRules, tlsRules, moreRules)
	only := flag.String("only", "", "play the rules of these `names` alone, with commas between")
	list := flag.Bool("list", false, "list the rules and stop")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "sabotage: it takes no arguments")
		os.Exit(2)
	}
	chosen := rules
	if *only != "" {
		var unknown string
		if chosen, unknown = named(strings.Split(*only, ",")); unknown != "" {
			fmt.Fprintf(os.Stderr, "sabotage: there is no rule %s; -list shows them\n", unknown)
			os.Exit(2)
		}
	}
	if *list {
		for _, r := range chosen {
			fmt.Printf("%-50s %-26s %s %s\n", r.name, r.file, r.pkg, r.run)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	bitten, err := playAll(ctx, chosen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sabotage:", err)
		os.Exit(1)
	}
	fmt.Printf("%d rules, %d bitten\n", len(chosen), bitten)
	if bitten < len(chosen) {
		os.Exit(1)
	}
}

// named finds the rules of names; an unknown one is given back.
func named(names []string) (found []rule, unknown string) {
	for _, name := range names {
		at := slices.IndexFunc(rules, func(r rule) bool { return r.name == name })
		if at < 0 {
			return nil, name
		}
		found = append(found, rules[at])
	}
	return found, ""
}

// playAll plays the rules, few at once, and prints one line each in their order.
func playAll(ctx context.Context, rules []rule) (bitten int, err error) {
	root, err := moduleRoot()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "sabotage")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	s := &saboteur{root: root, dir: dir, sound: map[string]*sound{}}
	turns := make(chan struct{}, atOnce)
	verdicts := make([]chan verdict, len(rules))
	for i := range rules {
		verdicts[i] = make(chan verdict, 1)
	}
	go s.playInTurn(ctx, rules, turns, verdicts)
	for i, r := range rules {
		v := <-verdicts[i]
		if v.bites {
			bitten++
		}
		fmt.Printf("%-11s %-50s %s %s  (%.1fs)\n", v.word(), r.name, r.pkg, r.run, v.took.Seconds())
		if !v.bites {
			fmt.Printf("            %s\n", strings.ReplaceAll(strings.TrimSpace(v.why), "\n", "\n            "))
		}
	}
	return bitten, ctx.Err()
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	path := strings.TrimSpace(string(out))
	if err != nil || path == "" || path == os.DevNull {
		return "", fmt.Errorf("not in a module (go env GOMOD: %q, %v)", path, err)
	}
	return filepath.Dir(path), nil
}

// verdict is what became of a rule.
type verdict struct {
	bites bool
	wrong bool // it is the rule that is at fault
	why   string
	took  time.Duration
}

func (v verdict) word() string {
	switch {
	case v.bites:
		return "bitten"
	case v.wrong:
		return "WRONG RULE"
	}
	return "NOT BITTEN"
}

// saboteur plays rules.
type saboteur struct {
	root, dir string

	mu    sync.Mutex
	sound map[string]*sound // by package and pattern
}

// sound is whether a test passes as things are; asked once.
type sound struct {
	once sync.Once
	err  error
}

// playInTurn starts each rule as soon as one of the turns is free.
func (s *saboteur) playInTurn(ctx context.Context, rules []rule, turns chan struct{}, to []chan verdict) {
	for i, r := range rules {
		turns <- struct{}{}
		go s.play(ctx, i, r, turns, to[i])
	}
}

func (s *saboteur) play(ctx context.Context, number int, r rule, turns <-chan struct{}, to chan<- verdict) {
	start := time.Now()
	v := s.judge(ctx, number, r)
	v.took = time.Since(start)
	<-turns
	to <- v
}

func (s *saboteur) judge(ctx context.Context, number int, r rule) verdict {
	overlay, err := s.overlay(number, r)
	if err == nil {
		err = s.passes(ctx, r)
	}
	if err != nil {
		return verdict{wrong: true, why: err.Error()}
	}
	result, err := s.test(ctx, r, overlay)
	switch {
	case err != nil:
		return verdict{wrong: true, why: err.Error()}
	case result.notBuilt:
		return verdict{wrong: true, why: "what comes of it does not compile:\n" + result.tail()}
	case result.timedOut && !r.timeoutBites:
		return verdict{wrong: true, why: "the test did not end, and the rule does not say that this counts:\n" + result.tail()}
	case result.timedOut, result.failed:
		return verdict{bites: true}
	case result.passed:
		return verdict{why: "the test passes without the guard"}
	}
	return verdict{wrong: true, why: "neither a pass nor a failure of the test:\n" + result.tail()}
}

// overlay writes the changed file and the description that go test takes.
func (s *saboteur) overlay(number int, r rule) (path string, err error) {
	original := filepath.Join(s.root, filepath.FromSlash(r.file))
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(text, []byte(r.find)); n != 1 || r.find == r.replace {
		return "", fmt.Errorf("stale: in %s, %q occurs %d times, want once", r.file, r.find, n)
	}
	changed := filepath.Join(s.dir, fmt.Sprintf("%d.go", number))
	err = os.WriteFile(changed, bytes.Replace(text, []byte(r.find), []byte(r.replace), 1), 0o600)
	if err != nil {
		return "", err
	}
	description, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return "", err
	}
	path = filepath.Join(s.dir, fmt.Sprintf("%d.json", number))
	return path, os.WriteFile(path, description, 0o600)
}

// passes requires that the rule's test exists, and passes as things are.
func (s *saboteur) passes(ctx context.Context, r rule) error {
	s.mu.Lock()
	key := r.pkg + " " + r.run
	known := s.sound[key]
	if known == nil {
		known = &sound{}
		s.sound[key] = known
	}
	s.mu.Unlock()
	known.once.Do(func() { known.err = s.checkSound(ctx, r) })
	return known.err
}

func (s *saboteur) checkSound(ctx context.Context, r rule) error {
	r.timeout = 0
	result, err := s.test(ctx, r, "")
	if err != nil {
		return err
	}
	if !result.passed {
		return fmt.Errorf("its test does not pass, or does not exist, as things are:\n%s", result.tail())
	}
	return nil
}

// result is what go test said.
type result struct {
	notBuilt bool
	timedOut bool
	failed   bool // a test
	passed   bool // the package, with one test at least
	output   []string
}

// tail is the end of the output.
func (r result) tail() string {
	return strings.Join(r.output[max(0, len(r.output)-25):], "")
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	FailedBuild                   string
}

// test runs the rule's test, with an overlay if there is one.
func (s *saboteur) test(ctx context.Context, r rule, overlay string) (result, error) {
	timeout := r.timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+buildTimeout)
	defer cancel()
	args := []string{"test", "-json", "-count=1", "-timeout", timeout.String(), "-run", r.run}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+r.pkg)...)
	cmd.Dir = s.root
	if overlay != "" { // in the environment it reaches what a test builds, too
		cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if ctx.Err() != nil {
		return result{}, fmt.Errorf("go test was ended: %w", ctx.Err())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	return read(&out, &errOut), nil
}

func read(out, errOut *bytes.Buffer) (r result) {
	ran := false
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var e event
		if json.Unmarshal(scanner.Bytes(), &e) != nil {
			r.output = append(r.output, scanner.Text()+"\n")
			continue
		}
		if e.Output != "" {
			r.output = append(r.output, e.Output)
		}
		r.timedOut = r.timedOut || strings.HasPrefix(e.Output, "panic: test timed out after ")
		switch e.Action {
		case "run":
			ran = true
		case "build-fail":
			r.notBuilt = true
		case "fail":
			r.notBuilt = r.notBuilt || e.FailedBuild != ""
			r.failed = r.failed || e.Test != ""
		case "pass":
			r.passed = r.passed || e.Test == ""
		}
	}
	r.passed = r.passed && ran && !r.failed
	if errOut.Len() > 0 {
		r.output = append(r.output, errOut.String())
	}
	return r
}
