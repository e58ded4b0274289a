package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresLink is one connection to a PostgreSQL, made when it is needed. One
// goroutine uses it at a time.
type postgresLink struct {
	config  *Config
	listens bool
	conn    *pgx.Conn // nil: none
	used    time.Time // when its last answer came
	woken   bool      // NOTIFY came since the last look
}

// ready makes sure of the connection, so that what fails before it has sent
// nothing: one that rested is asked first, and made anew where it is dead.
func (l *postgresLink) ready(ctx context.Context) error {
	if l.conn != nil {
		if time.Since(l.used) < trustTime || l.ask(ctx, func(conn *pgx.Conn) error { return conn.Ping(ctx) }) == nil {
			return nil
		}
		l.drop()
	}
	if err := l.connect(ctx); err != nil {
		return err
	}
	err := l.prepare(ctx)
	if err != nil {
		l.drop()
	}
	return err
}

// prepare makes sure of the schema, and listens.
func (l *postgresLink) prepare(ctx context.Context) error {
	var version int
	err := l.conn.QueryRow(ctx, "SELECT "+l.config.Name+".holdfast_version()").Scan(&version)
	if err != nil {
		return l.explain(err)
	}
	if version < postgresVersion {
		return fmt.Errorf("the schema %s is of version %d, and this is %d: %w", l.config.Name, version, postgresVersion, ErrUnprepared)
	}
	if l.listens {
		if _, err := l.conn.Exec(ctx, "LISTEN "+l.config.Name); err != nil {
			return err
		}
	}
	return l.retain(ctx)
}

// retain says what is kept.
func (l *postgresLink) retain(ctx context.Context) error {
	_, err := l.conn.Exec(ctx, "SELECT "+l.config.Name+".holdfast_retain($1, $2)", l.config.Keep, l.config.Entries)
	return err
}

// connect makes the connection, in at most connectTime.
func (l *postgresLink) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	config := l.config.postgres.Copy()
	config.DialFunc = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	if l.config.dial != nil {
		config.DialFunc = l.config.dial
	}
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { l.woken = true }
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	// Each step relies on its statements' own snapshots, whatever the database's
	// default is. Behind the start, so that a pooler of sessions lets it pass.
	_, err = conn.Exec(ctx, `SELECT set_config('default_transaction_isolation', 'read committed', false), set_config('statement_timeout', '10s', false),
		set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false), set_config('tcp_keepalives_count', '3', false)`)
	if err != nil {
		conn.Close(ctx)
		return err
	}
	l.conn, l.used = conn, time.Now()
	return nil
}

// drop ends the connection. It waits no longer than a moment for its peer.
func (l *postgresLink) drop() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.conn.Close(ctx)
	select {
	case <-l.conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
	l.conn = nil
}

// ask asks something. Whatever is no answer ends the connection.
func (l *postgresLink) ask(_ context.Context, what func(*pgx.Conn) error) error {
	if l.conn == nil {
		return errAway
	}
	err := what(l.conn)
	if err != nil && !isRefused(err) || isNotServing(err) {
		l.drop()
	}
	l.used = time.Now()
	return l.explain(err)
}

// explain adds the way out to the engine's words.
func (l *postgresLink) explain(err error) error {
	var reply *pgconn.PgError
	if !errors.As(err, &reply) {
		return err
	}
	switch reply.Code {
	case "3F000", "42883", "42P01": // no schema, no function, no table
		return fmt.Errorf("%w: %w", err, ErrUnprepared)
	case "42501":
		return fmt.Errorf("%w: grant this role USAGE ON SCHEMA %s and EXECUTE ON ALL FUNCTIONS in it", err, l.config.Name)
	}
	return err
}

// isRefused reports whether an error is the engine's answer, so that nothing was
// committed. One that ends the connection may come behind a commit.
func isRefused(err error) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply) && reply.SeverityUnlocalized == "ERROR"
}

// isNotServing reports whether the engine answers but takes nothing: the
// address may lead to another one by now.
func isNotServing(err error) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply) && (reply.Code == "25006" || strings.HasPrefix(reply.Code, "57P"))
}

// postgresFollower is a source: Follow's own connection, which listens.
type postgresFollower struct {
	postgresLink
	tend bool // it has waited for long: let go what is old
}

func (f *postgresFollower) read(ctx context.Context, after int64) (look, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var l look
	err := f.ask(ctx, func(conn *pgx.Conn) (err error) {
		f.woken = false // what comes from here on may be behind this look
		rows, err := conn.Query(ctx, "SELECT * FROM "+f.config.Name+".holdfast_follow($1, $2, $3, $4)", after, takeEntries, takeBytes, f.tend)
		if err != nil {
			return err
		}
		// To the last word: what was numbered by this call counts when that is committed.
		l, err = scanLook(rows)
		return err
	})
	f.tend = false
	return l, err
}

// scanLook reads the rows of holdfast_follow to their end.
func scanLook(rows pgx.Rows) (l look, err error) {
	defer rows.Close()
	seen := false
	for rows.Next() {
		var id, prev *int64
		var at *time.Time
		var body []byte
		if err := rows.Scan(&l.state.Start, &l.state.Floor, &l.state.Head, &l.known, &id, &prev, &at, &body); err != nil {
			return look{}, err
		}
		seen = true
		if id != nil && prev != nil && at != nil {
			l.entries = append(l.entries, Entry{ID: *id, Prev: *prev, At: *at, Body: body})
		}
	}
	if err := rows.Err(); err != nil {
		return look{}, err
	}
	if !seen {
		return look{}, fmt.Errorf("the table meta is empty: %w", ErrUnprepared)
	}
	return l, nil
}

func (f *postgresFollower) renew(ctx context.Context, unknown int64) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return f.ask(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SELECT "+f.config.Name+".holdfast_renew($1, true)", unknown)
		return err
	})
}

// wait waits for NOTIFY, and looks by itself now and then: one may be lost.
func (f *postgresFollower) wait(ctx context.Context, _ int64) ([]Entry, error) {
	if f.woken {
		return nil, nil
	}
	if f.conn == nil {
		return nil, errAway
	}
	waiting, cancel := context.WithTimeout(ctx, pollTime())
	defer cancel()
	err := f.conn.PgConn().WaitForNotification(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		f.tend = true
		return nil, nil
	}
	return nil, err
}
