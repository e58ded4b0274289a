package bus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	redisVersion = 1 // of redisLibrary: its VERSION

	connectTime = 5 * time.Second
)

// Tests set these.
var (
	answerTime = 10 * time.Second       // that an engine may take for an answer; more than pollTime
	trustTime  = 100 * time.Millisecond // a connection that was used so lately is used again unasked
)

// keepAlive finds a peer that is gone without a word within half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// redisLink is one connection to a Redis, made when it is needed. One goroutine
// uses it at a time.
type redisLink struct {
	config *Config
	client *redis.Client // of one connection; nil: none
	used   time.Time     // when its last answer came
	loaded bool          // the functions were not there, and were loaded
}

// ready makes sure of the connection, so that what fails before it has sent
// nothing: one that rested is asked first, and made anew where it is dead.
func (l *redisLink) ready(ctx context.Context) error {
	if l.client != nil {
		if time.Since(l.used) < trustTime || l.do(ctx, redis.NewStatusCmd(ctx, "ping")) == nil {
			return nil
		}
		l.drop()
	}
	options, err := l.config.redisOptions()
	if err != nil {
		return err
	}
	l.client = redis.NewClient(options)
	version, err := l.call(ctx, "holdfast_version")
	if n, ok := version.(int64); err == nil && ok && n >= redisVersion {
		return nil // a later one does what this one does
	}
	if err != nil && !isMissing(err) {
		l.drop()
		return err
	}
	return l.load(ctx)
}

// load loads the functions.
func (l *redisLink) load(ctx context.Context) error {
	err := l.do(ctx, redis.NewStringCmd(ctx, "function", "load", "replace", redisLibrary))
	if err != nil {
		l.drop()
		return fmt.Errorf("the functions could not be loaded: %w", err)
	}
	l.loaded = true
	return nil
}

// drop ends the connection.
func (l *redisLink) drop() {
	if l.client != nil {
		l.client.Close()
		l.client = nil
	}
}

// do sends a command and reads its answer. ctx's end, and whatever is no answer,
// end the connection.
func (l *redisLink) do(ctx context.Context, cmd redis.Cmder) error {
	client := l.client
	if client == nil {
		return errAway
	}
	// The driver does not look at ctx while it reads.
	stop := context.AfterFunc(ctx, func() { client.Close() })
	err := client.Process(ctx, cmd)
	if !stop() || err != nil && !isReply(err) || isUseless(err) {
		l.drop()
	}
	l.used = time.Now()
	return err
}

// call calls a function on the log.
func (l *redisLink) call(ctx context.Context, function string, args ...any) (any, error) {
	line := make([]any, 0, 4+len(args))
	line = append(line, "fcall", function, 1, l.config.Name)
	if function == "holdfast_read" || function == "holdfast_version" {
		line[0] = "fcall_ro"
	}
	cmd := redis.NewCmd(ctx, append(line, args...)...)
	err := l.do(ctx, cmd)
	if function != "holdfast_version" && isMissing(err) { // flushed since
		if err = l.load(ctx); err != nil {
			return nil, downed(err)
		}
		cmd = redis.NewCmd(ctx, append(line, args...)...)
		err = l.do(ctx, cmd)
	}
	return cmd.Val(), err
}

// open makes the log if there is none, says what is kept, and lets go what is old.
func (l *redisLink) open(ctx context.Context) (State, error) {
	answer, err := l.call(ctx, "holdfast_open", l.config.Keep.Microseconds(), l.config.Entries)
	if err != nil {
		return State{}, err
	}
	s, err := parseLook(answer)
	return s.state, err
}

// read gives up to count entries behind a position.
func (l *redisLink) read(ctx context.Context, after int64, count int) (look, error) {
	for range 2 {
		answer, err := l.call(ctx, "holdfast_read", after, count, takeBytes)
		if err == nil {
			return parseLook(answer)
		}
		if !errors.Is(err, redis.Nil) {
			return look{}, err
		}
		if _, err := l.open(ctx); err != nil { // there is no log, or no more
			return look{}, err
		}
	}
	return look{}, errors.New("the log was lost again as soon as it was made")
}

// parseLook understands what holdfast_read and holdfast_open answer.
func parseLook(answer any) (look, error) {
	list, ok := answer.([]any)
	if !ok || len(list) < 3 || len(list) > 4 && len(list)%4 != 0 {
		return look{}, fmt.Errorf("the functions answered %T of another shape: are they another version's?", answer)
	}
	var n [4]int64
	for i := range min(len(list), 4) {
		if n[i], ok = list[i].(int64); !ok {
			return look{}, fmt.Errorf("the functions answered %T for a number", list[i])
		}
	}
	l := look{state: State{Start: n[0], Floor: n[1], Head: n[2]}, known: n[3] == 1}
	for i := 4; i+4 <= len(list); i += 4 {
		var s [4]string
		for j := range s {
			if s[j], ok = list[i+j].(string); !ok {
				return look{}, fmt.Errorf("the functions answered %T for a field", list[i+j])
			}
		}
		e, err := redisEntry(s[0], s[1], s[2], s[3])
		if err != nil {
			return look{}, err
		}
		l.entries = append(l.entries, e)
	}
	return l, nil
}

// redisEntry is an entry by its fields.
func redisEntry(id, prev, at, body string) (e Entry, err error) {
	var us int64
	for _, f := range []struct {
		to   *int64
		from string
	}{{&e.ID, id}, {&e.Prev, prev}, {&us, at}} {
		if *f.to, err = strconv.ParseInt(f.from, 10, 64); err != nil {
			return Entry{}, fmt.Errorf("entry %q has a number that is none: %q", id, f.from)
		}
	}
	e.At, e.Body = time.UnixMicro(us), []byte(body)
	return e, nil
}

// redisOptions are the driver's.
func (c *Config) redisOptions() (*redis.Options, error) {
	a := c.redis
	dialer := &net.Dialer{Timeout: connectTime, KeepAliveConfig: keepAlive}
	dial := dialer.DialContext
	if c.dial != nil {
		dial = c.dial
	}
	if a.tls {
		config := &tls.Config{ServerName: a.host, MinVersion: tls.VersionTLS12}
		if a.ca != "" {
			pem, err := os.ReadFile(a.ca)
			if err != nil {
				return nil, fmt.Errorf("ca: %w", err)
			}
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("ca: %s has no certificate in PEM form", a.ca)
			}
		}
		dial = (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext
	}
	return &redis.Options{
		Addr: a.address, Username: a.user, Password: a.password, DB: a.db,
		Dialer: dial, Protocol: 2, ClientName: "holdfast", DisableIdentity: true,
		// One connection, made once: this package says when again.
		PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ConnMaxIdleTime: -1,
		DialTimeout: connectTime, ReadTimeout: answerTime, WriteTimeout: answerTime, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}

// isReply reports whether an error is the engine's answer: what was asked was not done.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isMissing reports whether the engine lacks the functions.
func isMissing(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Function not found")
}

// isUseless reports whether the engine answers but does not serve: the address
// may lead to another one by now.
func isUseless(err error) bool {
	if err == nil {
		return false
	}
	word, _, _ := strings.Cut(err.Error(), " ")
	switch word {
	case "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "NOAUTH":
		return true
	}
	return false
}
