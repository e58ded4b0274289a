package bus

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresSchema makes the tables and functions. holdfast_publish is an
// interface for others.
//
//go:embed init.sql
var postgresSchema string

const postgresVersion = 1 // of postgresSchema: meta's version

// schemaWord is the schema's name in postgresSchema; holdfast_publish is no such word.
var schemaWord = regexp.MustCompile(`\bholdfast\b`)

// postgresBus is a log in PostgreSQL 14 or later: a table whose rows are
// numbered behind their commit, under one lock.
type postgresBus struct {
	config *Config
	life   *life
	batch  *batcher

	publishing postgresLink // the sender's alone
	askMu      sync.Mutex
	asking     postgresLink // State's and Renew's
}

func openPostgres(c *Config) *postgresBus {
	p := &postgresBus{config: c, life: newLife()}
	p.publishing.config, p.asking.config = c, c
	p.batch = &batcher{life: p.life, add: p.add}
	return p
}

// initPostgres makes the schema, or brings it up to date.
func initPostgres(ctx context.Context, c *Config) ([]string, error) {
	link := postgresLink{config: c}
	if err := link.connect(ctx); err != nil {
		return nil, downed(err)
	}
	defer link.drop()
	var before *int
	err := link.conn.QueryRow(ctx, "SELECT version FROM "+c.Name+".meta").Scan(&before)
	var reply *pgconn.PgError
	if err != nil && !errors.Is(err, pgx.ErrNoRows) && !errors.As(err, &reply) {
		return nil, downed(err)
	}
	if _, err := link.conn.PgConn().Exec(ctx, schemaWord.ReplaceAllString(postgresSchema, c.Name)).ReadAll(); err != nil {
		return nil, downed(fmt.Errorf("the schema %s could not be made: %w", c.Name, err))
	}
	did, keeps := "made", fmt.Sprintf("keeps %s and %d entries", c.Keep, c.Entries)
	if before != nil {
		did = fmt.Sprintf("was there, version %d, and is up to date", *before)
	}
	if before != nil && c.silent {
		keeps = "keeps what it kept" // as its nodes said, which do not say it again soon
	} else if err := link.retain(ctx); err != nil {
		return nil, downed(err)
	}
	return []string{
		fmt.Sprintf("bus %s: schema %s %s; %s", c, c.Name, did, keeps),
		fmt.Sprintf("a role that publishes needs: GRANT USAGE ON SCHEMA %[1]s TO role; "+
			"GRANT EXECUTE ON FUNCTION %[1]s.holdfast_publish(text, text), %[1]s.holdfast_publish(jsonb) TO role", c.Name),
	}, nil
}

// Publish is Bus.Publish.
func (p *postgresBus) Publish(ctx context.Context, bodies [][]byte) ([]int64, error) {
	return p.batch.publish(ctx, bodies)
}

// add is the batcher's.
func (p *postgresBus) add(ctx context.Context, bodies [][]byte) (last int64, err error) {
	for i, b := range bodies { // the batcher's own list
		if b == nil {
			bodies[i] = []byte{} // nil would be NULL
		}
	}
	for range 2 { // again on a new connection, if the old one was found dead before a byte was sent
		if err := p.publishing.ready(ctx); err != nil {
			return 0, downed(err)
		}
		err = p.publishing.ask(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT "+p.config.Name+".holdfast_add($1)", bodies).Scan(&last)
		})
		if err == nil || !pgconn.SafeToRetry(err) {
			break
		}
	}
	switch {
	case err == nil:
		return last, nil
	case isRefused(err) || pgconn.SafeToRetry(err):
		return 0, downed(err)
	}
	return 0, &causedError{ErrUnknown, err}
}

// Follow is Bus.Follow.
func (p *postgresBus) Follow(ctx context.Context, after int64, to Follower) error {
	if err := positioned(after); err != nil {
		return err
	}
	ctx, leave, err := p.life.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	f := &postgresFollower{}
	f.config, f.listens = p.config, true
	defer f.drop()
	if err := f.ready(ctx); err != nil {
		return whyEnded(ctx, downed(err))
	}
	return follow(ctx, f, after, to)
}

// State is Bus.State.
func (p *postgresBus) State(ctx context.Context) (s State, err error) {
	err = p.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT start, floor, head FROM "+p.config.Name+".holdfast_read(0, 0, 0)").Scan(&s.Start, &s.Floor, &s.Head)
	})
	return s, err
}

// Renew is Bus.Renew.
func (p *postgresBus) Renew(ctx context.Context, seen int64) error {
	if err := positioned(seen); err != nil {
		return err
	}
	return p.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SELECT "+p.config.Name+".holdfast_renew($1, false)", seen)
		return err
	})
}

// ask asks the engine on the connection for that, one after the other.
func (p *postgresBus) ask(ctx context.Context, what func(context.Context, *pgx.Conn) error) error {
	ctx, leave, err := p.life.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	p.askMu.Lock()
	defer p.askMu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	err = p.asking.ready(limited)
	if err == nil {
		err = p.asking.ask(limited, func(conn *pgx.Conn) error { return what(limited, conn) })
	}
	return whyEnded(ctx, downed(err))
}

// Close is Bus.Close.
func (p *postgresBus) Close() error {
	if p.life.close() {
		p.publishing.drop()
		p.asking.drop()
	}
	return nil
}
