package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// session is an app's connection.
func session(t *testing.T, s *server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(ctxOf(t), "postgres://postgres@/postgres?port=5432&host="+s.dir)
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func sql(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(ctxOf(t), sql, args...)
	must(t, err)
}

// data is the data of what holdfast_publish(channel, data) published.
func data(t *testing.T, f *seen) (all []string) {
	for _, body := range f.bodies(t) {
		all = append(all, strings.TrimSuffix(strings.TrimPrefix(body, `{"data": "`), `", "channel": "news"}`))
	}
	return all
}

func TestPostgres_ATransactionThatCommitsLateIsNotPassedOverAndDelaysNobody(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	f, _ := followNow(t, s.open(t, ""), 0)
	one, two := session(t, server), session(t, server)
	publish := "SELECT " + s.name + ".holdfast_publish('news', $1)"
	sql(t, one, "BEGIN")
	sql(t, one, publish, "first begun")
	sql(t, two, "BEGIN")
	sql(t, two, publish, "last begun")
	sql(t, two, "COMMIT")
	until := func(n int) {
		f.until(t, strconv.Itoa(n), func() bool { return len(f.entries) == n })
	}
	until(1)
	publishNow(t, s.open(t, ""), `{"data": "a node's", "channel": "news"}`)
	until(2)
	sql(t, one, publish, "and a second")
	sql(t, one, "COMMIT")
	until(4)
	if got, want := data(t, f), []string{"last begun", "a node's", "first begun", "and a second"}; !slices.Equal(got, want) {
		t.Errorf("followed %q, want %q", got, want)
	}
}

func TestPostgres_WhatIsRolledBackIsNotPublished(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	f, _ := followNow(t, s.open(t, ""), 0)
	app := session(t, server)
	publish := "SELECT " + s.name + ".holdfast_publish('news', $1)"
	sql(t, app, "BEGIN")
	sql(t, app, publish, "never")
	sql(t, app, "ROLLBACK")
	sql(t, app, "BEGIN")
	sql(t, app, publish, "kept")
	sql(t, app, "SAVEPOINT a")
	sql(t, app, publish, "never")
	sql(t, app, "ROLLBACK TO a")
	sql(t, app, "COMMIT")
	sql(t, app, publish, "end")
	f.until(t, "end", func() bool { return len(f.entries) == 2 })
	if got, want := data(t, f), []string{"kept", "end"}; !slices.Equal(got, want) {
		t.Errorf("followed %q, want %q", got, want)
	}
}

func TestPostgres_DataMayBeLargerThanNotifyCarries(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	f, _ := followNow(t, s.open(t, ""), 0)
	app := session(t, server)
	for _, size := range []int{8000, 8001, 1 << 20, 7 << 20} {
		sql(t, app, "SELECT "+s.name+".holdfast_publish('news', repeat('x', $1))", size)
		want := `{"data": "` + strings.Repeat("x", size) + `", "channel": "news"}`
		f.untilBody(t, want)
	}
	f.bodies(t)
	for _, c := range []struct{ call, want string }{
		{"holdfast_publish('news', repeat('x', 9000000))", "at most 8388608"},
		{"holdfast_publish('', 'x')", "1 to 255 bytes"},
		{"holdfast_publish(repeat('c', 256), 'x')", "1 to 255 bytes"},
		{`holdfast_publish(E'a\nb', 'x')`, "no control byte"},
		{"holdfast_publish(NULL, 'x')", "not NULL"},
		{"holdfast_publish('news', NULL)", "not NULL"},
		{"holdfast_publish('[1]'::jsonb)", "JSON object"},
		{"holdfast_publish(NULL::jsonb)", "JSON object"},
	} {
		if _, err := server.tryPSQL("postgres", "SELECT "+s.name+"."+c.call); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.call, err, c.want)
		}
	}
}

func TestPostgres_FiftyConcurrentTransactionsOfTwoHundredAreAllFollowedOnceInTheirOrder(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	one, two := s.open(t, ""), s.open(t, "")
	f, _ := followNow(t, one, 0)
	g, _ := followNow(t, two, 0)
	const apps, each = 50, 200
	var all sync.WaitGroup
	for app := range apps {
		conn := session(t, server)
		all.Go(func() {
			for begun := 0; begun < each; begun += 20 {
				tx, err := conn.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for i := begun; i < begun+20; i++ {
					if _, err := tx.Exec(t.Context(), "SELECT "+s.name+".holdfast_publish('news', $1)", fmt.Sprintf("%d %d", app, i)); err != nil {
						t.Error(err)
					}
				}
				if err := tx.Commit(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, follower := range []*seen{f, g} {
		follower.until(t, "all", func() bool { return len(follower.entries) >= apps*each })
		next := map[string]int{}
		for _, d := range data(t, follower) {
			app, n, _ := strings.Cut(d, " ")
			if n != strconv.Itoa(next[app]) {
				t.Fatalf("app %s: %s is followed, want %d", app, n, next[app])
			}
			next[app]++
		}
	}
	if !slices.Equal(f.bodies(t), g.bodies(t)) || !slices.Equal(f.ids(), g.ids()) {
		t.Error("two followers have two orders")
	}
}

func TestPostgres_NumbersAreGivenOneAfterTheOther(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	one, two := session(t, server), session(t, server)
	add := "SELECT " + s.name + ".holdfast_add(ARRAY['x'::bytea])"
	var first, second int64
	tx, err := one.Begin(ctxOf(t))
	must(t, err)
	must(t, tx.QueryRow(ctxOf(t), add).Scan(&first))
	result := make(chan error, 1)
	go func() { result <- two.QueryRow(t.Context(), add).Scan(&second) }()
	waits := fmt.Sprintf("SELECT count(*) FROM pg_locks WHERE pid = %d AND NOT granted", two.PgConn().PID())
	for ctx := ctxOf(t); server.psql(t, waits) == "0"; pause(ctx) {
		must(t, ctx.Err())
	}
	must(t, tx.Commit(ctxOf(t)))
	if err := <-result; err != nil || second < first+1000 {
		t.Errorf("behind %d came %d, %v", first, second, err)
	}
}

func TestPostgres_ARoleWithExecuteAlonePublishesAndDoesNothingElse(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	f, _ := followNow(t, s.open(t, ""), 0)
	role := "app_" + s.name
	server.psql(t, strings.NewReplacer("@", s.name, "#", role).Replace(`CREATE ROLE # LOGIN; GRANT USAGE ON SCHEMA @ TO #;
		GRANT EXECUTE ON FUNCTION @.holdfast_publish(text, text), @.holdfast_publish(jsonb) TO #;`))
	as := func(sql string) error {
		_, err := server.tryPSQL(role, strings.ReplaceAll(sql, "@", s.name))
		return err
	}
	must(t, as("SELECT @.holdfast_publish('news', 'hi')"))
	must(t, as(`SET search_path = @; SELECT holdfast_publish('{"channel": "news", "data": {"n": 1}}'::jsonb)`))
	f.until(t, "both", func() bool { return len(f.entries) == 2 })
	f.wantBodies(t, []string{`{"data": "hi", "channel": "news"}`, `{"data": {"n": 1}, "channel": "news"}`})
	for _, other := range []string{
		"SELECT @.holdfast_number()", "SELECT @.holdfast_add(ARRAY['x'::bytea])", "SELECT * FROM @.holdfast_read(0, 1, 1)", "SELECT * FROM @.log",
		"SELECT @.holdfast_renew(1, true)", "INSERT INTO @.inbox (body) VALUES ('x')", "SELECT * FROM @.meta", "SELECT @.holdfast_enter(NULL, 1)",
		"SELECT @.holdfast_retain('1s', 1)", "CREATE TABLE @.mine ()",
	} {
		if err := as(other); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: %v", other, err)
		}
	}
	// The functions see nothing of what a role puts before them.
	server.psql(t, "CREATE SCHEMA s_"+role+" AUTHORIZATION "+role)
	must(t, as(`CREATE TEMP TABLE inbox (seq bigint, body bytea); CREATE TEMP TABLE meta (x int);
		CREATE FUNCTION s_`+role+`.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $x$run as %$x$, current_user; END';
		SET search_path = s_`+role+`, pg_temp, @, pg_catalog; SELECT holdfast_publish('{"channel": "news", "data": "still"}'::jsonb)`))
	f.until(t, "still", func() bool { return len(f.entries) == 3 })

	// A node needs EXECUTE on all of them, and is told so.
	node, err := Open("postgres://"+role+"@"+s.address+"/postgres?log="+s.name, Options{})
	must(t, err)
	defer node.Close()
	if _, err := node.State(ctxOf(t)); !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "EXECUTE ON ALL FUNCTIONS") {
		t.Errorf("State as a role that may not: %v", err)
	}
	server.psql(t, strings.NewReplacer("@", s.name, "#", role).Replace("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA @ TO #"))
	publishNow(t, node, "from the node")
	f.untilBody(t, "from the node")
	g, stop := followNow(t, node, 0)
	g.untilBody(t, "from the node")
	stop()
}

func TestPostgres_WhatIsPublishedWhileNobodyFollowsWaits(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	server.psql(t, strings.ReplaceAll("SELECT @.holdfast_publish('news', n::text) FROM generate_series(1, 2500) AS n", "@", s.name))
	b := s.open(t, "")
	publishNow(t, b, `{"data": "2501", "channel": "news"}`) // numbers what waits first
	server.psql(t, strings.ReplaceAll("SELECT @.holdfast_publish('news', n::text) FROM generate_series(2502, 5000) AS n", "@", s.name))
	f, _ := followNow(t, b, 0)
	f.until(t, "all", func() bool { return len(f.entries) >= 5000 })
	if got := data(t, f); !slices.Equal(got, numbers(1, 5000)) {
		t.Errorf("followed %s", short(got))
	}
	server.psql(t, strings.ReplaceAll("SELECT @.holdfast_publish('news', 'x'); SELECT @.holdfast_number()", "@", s.name))
	if n := server.psql(t, "SELECT count(*) FROM "+s.name+".inbox"); n != "0" {
		t.Errorf("%s wait in the inbox", n)
	}
}

func TestPostgres_ANotifyThatIsLostIsMadeUpForByALook(t *testing.T) {
	pollSoon(t)
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	f, stop := followNow(t, s.open(t, "keep=1s"), 0)
	f.until(t, "begun", func() bool { return len(f.begun) == 1 })
	server.psql(t, "INSERT INTO "+s.name+".inbox (body) VALUES ('quietly')")
	f.untilBody(t, "quietly")
	// What is too old goes, though nobody publishes.
	for ctx := ctxOf(t); server.psql(t, "SELECT count(*) FROM "+s.name+".log") != "0"; pause(ctx) {
		must(t, ctx.Err())
	}
	stop()
	if f.wantBodies(t, []string{"quietly"}); f.gaps != 1 {
		t.Errorf("%d gaps were told", f.gaps)
	}
}

func TestPostgres_InitIsDoneAgainAndAtOnceByMany(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	b := s.open(t, "")
	ids := publishNow(t, b, "1")
	url := "postgres://postgres@" + s.address + "/postgres?log=fresh_" + s.name
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := Init(t.Context(), url, Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	did, err := Init(ctxOf(t), s.url, Options{})
	must(t, err)
	if len(did) != 2 || !strings.Contains(did[0], "version 1, and is up to date") || !strings.Contains(did[1], "GRANT EXECUTE ON FUNCTION "+s.name+".holdfast_publish(text, text)") {
		t.Errorf("Init did %q", did)
	}
	if state := stateOf(t, b); state.Head != ids[0] {
		t.Errorf("the head is %d, want %d", state.Head, ids[0])
	}
	server.psql(t, "UPDATE "+s.name+".meta SET version = 7")
	if _, err := Init(ctxOf(t), s.url, Options{}); err == nil || !strings.Contains(err.Error(), "later Holdfast") {
		t.Errorf("Init of a later version: %v", err)
	}
	// And by hand, as it stands.
	for range 2 {
		server.psql(t, postgresSchema)
	}
	server.psql(t, "DROP SCHEMA holdfast CASCADE")
}

func TestPostgres_ADatabaseWithoutTheSchemaNamesTheWayOut(t *testing.T) {
	s := postgresStage(t)
	b, err := Open("postgres://postgres@"+s.address+"/postgres?log=nowhere", Options{})
	must(t, err)
	defer b.Close()
	_, publishErr := b.Publish(ctxOf(t), byteBodies([]string{"x"}))
	_, stateErr := b.State(ctxOf(t))
	for call, err := range map[string]error{"Publish": publishErr, "State": stateErr, "Follow": b.Follow(ctxOf(t), 0, newSeen(0))} {
		if !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "run holdfast bus init") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func TestPostgres_ADefaultOfAnotherIsolationChangesNothing(t *testing.T) {
	server := shared(t, sharedPostgres)
	for _, isolation := range []string{"serializable", "repeatable read"} {
		s := postgresStage(t)
		role := strings.ReplaceAll("strict_"+s.name, " ", "")
		server.psql(t, strings.NewReplacer("@", s.name, "#", role).Replace(`CREATE ROLE # LOGIN SUPERUSER; ALTER ROLE # SET default_transaction_isolation = '`+isolation+`';
			ALTER ROLE # SET synchronous_commit = off;`))
		url := "postgres://" + role + "@" + s.address + "/postgres?log=" + s.name
		one, err := Open(url, Options{})
		must(t, err)
		defer one.Close()
		two, err := Open(url, Options{})
		must(t, err)
		defer two.Close()
		f, stop := followNow(t, one, 0)
		var all sync.WaitGroup
		for _, b := range []Bus{one, two} {
			all.Go(func() {
				for range 50 {
					publishNow(t, b, "x")
				}
			})
		}
		for range 50 {
			if _, err := server.tryPSQL(role, "SELECT "+s.name+".holdfast_publish('news', 'hi')"); err != nil {
				t.Error(err)
			}
		}
		all.Wait()
		f.until(t, "all", func() bool { return len(f.entries) == 150 })
		f.bodies(t)
		stop()
	}
}

func TestPostgres_ACopyThatWasPutBackGivesNoNumberTwice(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	b := s.open(t, "")
	publishNow(t, b, numbers(1, 5000)...) // ahead of the clock
	s.save()
	ids := publishNow(t, b, numbers(5001, 5004)...)
	s.restore()
	if again := publishNow(t, b, "again", "and again"); again[0] < ids[3]+leap/2 || again[1] != again[0]+1000 {
		t.Errorf("behind the copy %v are given, and %v were given before it", again, ids)
	}
	last := publishNow(t, b, "one step")
	if next := publishNow(t, b, "on"); next[0] != last[0]+1000 {
		t.Errorf("a leap from %d to %d, though nothing happened", last[0], next[0])
	}
	server.psql(t, "SELECT "+s.name+".holdfast_retain('11 minutes', 1000)")
	if next := publishNow(t, b, "on"); next[0] != last[0]+2000 {
		t.Errorf("a leap to %d, though nothing happened", next[0])
	}
}

func TestPostgres_AReadOnlyServerTakesNothing(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	ids := publishNow(t, s.open(t, ""), "1")
	role := "reader_" + s.name
	server.psql(t, "CREATE ROLE "+role+" LOGIN SUPERUSER; ALTER ROLE "+role+" SET default_transaction_read_only = on")
	b, err := Open("postgres://"+role+"@"+s.address+"/postgres?log="+s.name, Options{})
	must(t, err)
	defer b.Close()
	if _, err := b.Publish(ctxOf(t), byteBodies([]string{"never"})); !errors.Is(err, ErrDown) {
		t.Errorf("Publish to a server that is read only: %v", err)
	}
	if state := stateOf(t, s.open(t, "")); state.Head != ids[0] {
		t.Errorf("the head is %d, want %d", state.Head, ids[0])
	}
}

func TestPostgres_AnEntryThatWasTakenOutByHandIsToldAsAGap(t *testing.T) {
	server := shared(t, sharedPostgres)
	s := postgresStage(t)
	b := s.open(t, "")
	ids := publishNow(t, b, numbers(1, 6)...)
	server.psql(t, fmt.Sprintf("DELETE FROM %s.log WHERE id = %d", s.name, ids[2]))
	f, _ := followNow(t, b, ids[0])
	f.untilBody(t, "6")
	f.wantBodies(t, []string{"2", "4", "5", "6"})
	if f.gaps != 1 || len(f.begun) != 2 || f.begun[1].Floor != ids[2] {
		t.Errorf("%d gaps were told, begun %+v", f.gaps, f.begun)
	}
}

func TestPostgres_TheSchemaHasTheLogsName(t *testing.T) {
	named := schemaWord.ReplaceAll([]byte(postgresSchema), []byte("other"))
	if bytes.Contains(named, []byte("holdfast.")) || !bytes.Contains(named, []byte("FUNCTION other.holdfast_publish(channel text")) {
		t.Error("the schema's name stays where it is not a function's")
	}
}
