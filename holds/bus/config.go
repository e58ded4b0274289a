package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options are what a URL that is silent about them means.
type Options struct {
	Keep    time.Duration // how long an entry is kept; 0: 10 minutes
	Entries int64         // how many are kept; 0: 100,000
}

// Config is a URL that was understood.
type Config struct {
	Kind    string        // memory, redis or postgres
	Name    string        // of the log, so that several installations may share one engine
	Keep    time.Duration // 1s to 720h
	Entries int64         // 1 to 10,000,000

	silent   bool   // nobody said what is kept
	address  string // for people: where the engine is, without user and password
	redis    redisAddress
	postgres *pgx.ConnConfig
	dial     func(ctx context.Context, network, address string) (net.Conn, error) // nil: TCP, and unix where the address says so
}

// redisAddress is where a Redis is.
type redisAddress struct {
	address, host  string
	user, password string
	db             int
	tls            bool
	ca             string // a file of certificates; "": the system's
}

const (
	defaultName    = "holdfast"
	defaultKeep    = 10 * time.Minute
	defaultEntries = 100_000
)

// ours are the query keys of every engine.
var ours = []string{"log", "keep", "entries"}

// libpq are those of PostgreSQL's own that are passed on.
var libpq = []string{
	"host", "port", "user", "password", "passfile", "dbname", "database", "application_name", "target_session_attrs",
	"sslmode", "sslcert", "sslkey", "sslrootcert", "sslpassword", "sslsni", "sslnegotiation", "channel_binding", "require_auth",
}

// wellNamed is a name that is one in every engine: a key's part in Redis, a
// schema in PostgreSQL.
var wellNamed = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// Parse understands a URL, strictly: memory, redis://, rediss://, postgres:// or
// postgresql://, with the query keys log (the name), keep (an age) and entries
// (a count). No error has a password in it.
func Parse(url string, o Options) (*Config, error) {
	base, rawQuery, _ := strings.Cut(url, "?")
	query, err := neturl.ParseQuery(rawQuery)
	if err != nil || strings.ContainsAny(rawQuery, "#@") { // @: the ? was in a password
		return nil, errors.New("bus: what follows ? is no list of key=value joined by & (percent-encode what is not a letter or a digit in password and values)")
	}
	scheme, _, _ := strings.Cut(base, ":")
	c := &Config{}
	var theirs []string
	switch {
	case base == "memory":
		c.Kind = "memory"
	case scheme == "redis" || scheme == "rediss":
		c.Kind = "redis"
		if scheme == "rediss" {
			theirs = []string{"ca"}
		}
	case scheme == "postgres" || scheme == "postgresql":
		c.Kind, theirs = "postgres", libpq
	default:
		return nil, errors.New("bus: memory, redis://…, rediss://…, postgres://… and postgresql://… are there, and this is none of them")
	}
	if err := c.checkKeys(query, theirs); err != nil {
		return nil, err
	}
	if err := c.readOurs(query, o); err != nil {
		return nil, err
	}
	switch c.Kind {
	case "redis":
		err = c.parseRedis(base, query)
	case "postgres":
		err = c.parsePostgres(base, query)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// checkKeys refuses query keys that nothing reads, and those that are there twice.
func (c *Config) checkKeys(query neturl.Values, theirs []string) error {
	known := append(slices.Clone(ours), theirs...)
	for _, key := range slices.Sorted(keysOf(query)) {
		if !slices.Contains(known, key) {
			return fmt.Errorf("bus: a %s URL has no key %q; it may have %s", c.Kind, key, strings.Join(known, ", "))
		}
		if len(query[key]) > 1 {
			return fmt.Errorf("bus: the key %q is there %d times", key, len(query[key]))
		}
	}
	return nil
}

func keysOf(query neturl.Values) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for key := range query {
			if !yield(key) {
				return
			}
		}
	}
}

// readOurs takes the name and the retention out of a query.
func (c *Config) readOurs(query neturl.Values, o Options) (err error) {
	c.Name, c.Keep, c.Entries = defaultName, defaultKeep, defaultEntries
	c.silent = o == (Options{}) && !query.Has("keep") && !query.Has("entries")
	if o.Keep != 0 {
		c.Keep = o.Keep
	}
	if o.Entries != 0 {
		c.Entries = o.Entries
	}
	if query.Has("log") {
		c.Name = query.Get("log")
	}
	if query.Has("keep") {
		if c.Keep, err = time.ParseDuration(query.Get("keep")); err != nil {
			return fmt.Errorf("bus: keep=%s is no duration such as 10m", query.Get("keep"))
		}
	}
	if query.Has("entries") {
		if c.Entries, err = strconv.ParseInt(query.Get("entries"), 10, 64); err != nil {
			return fmt.Errorf("bus: entries=%s is no count", query.Get("entries"))
		}
	}
	switch {
	case !wellNamed.MatchString(c.Name) || strings.HasPrefix(c.Name, "pg_"):
		return fmt.Errorf("bus: log=%q is no name: a small letter, then small letters, digits and _, at most 32 in all, not pg_…", c.Name)
	case c.Keep < time.Second || c.Keep > 720*time.Hour:
		return fmt.Errorf("bus: keep is %s; it may be 1s to 720h", c.Keep)
	case c.Entries < 1 || c.Entries > 10_000_000:
		return fmt.Errorf("bus: entries is %d; it may be 1 to 10000000", c.Entries)
	}
	for _, key := range ours {
		query.Del(key)
	}
	return nil
}

// parseRedis understands redis://[[USER]:PASSWORD@]HOST[:PORT][/DB].
func (c *Config) parseRedis(base string, query neturl.Values) error {
	u, err := neturl.Parse(base)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		// What net/url says of it may quote the password.
		return errors.New("bus: this is no URL redis://[USER:PASSWORD@]HOST[:PORT][/DB] (percent-encode what is not a letter or a digit in the password)")
	}
	a := redisAddress{host: u.Hostname(), tls: u.Scheme == "rediss", ca: query.Get("ca")}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	if a.host == "" {
		return errors.New("bus: the redis URL names no host")
	}
	a.address = net.JoinHostPort(a.host, port)
	if u.User != nil {
		a.user = u.User.Username()
		a.password, _ = u.User.Password()
	}
	if db := strings.TrimPrefix(u.Path, "/"); db != "" {
		if a.db, err = strconv.Atoi(db); err != nil || a.db < 0 {
			return fmt.Errorf("bus: the redis URL's path is the database's number, and %q is none", db)
		}
	}
	if a.ca != "" {
		if _, err := os.Stat(a.ca); err != nil {
			return fmt.Errorf("bus: ca: %w", err)
		}
	}
	c.redis = a
	c.address = u.Scheme + "://" + a.address + "/" + strconv.Itoa(a.db)
	return nil
}

// parsePostgres leaves the rest of a URL to the driver, which reads the PG…
// variables of the environment too, as psql does.
func (c *Config) parsePostgres(base string, query neturl.Values) error {
	if len(query) > 0 {
		base += "?" + query.Encode()
	}
	config, err := pgx.ParseConfig(base)
	if err != nil {
		// What the driver says of it quotes the URL.
		return errors.New("bus: this is no URL postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE[?key=value&…] that can be understood" +
			" (percent-encode what is not a letter or a digit in the password; a file that it names may be missing)")
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "holdfast"
	}
	c.postgres = config
	c.address = fmt.Sprintf("postgres://%s/%s", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), config.Database)
	return nil
}

// String is for logs: where the log is, without user and password.
func (c *Config) String() string {
	if c.Kind == "memory" {
		return "memory"
	}
	return c.address + " log " + c.Name
}

// Open gives the bus; see the function Open.
func (c *Config) Open() Bus {
	switch c.Kind {
	case "redis":
		return openRedis(c)
	case "postgres":
		return openPostgres(c)
	}
	return NewMemory(Options{Keep: c.Keep, Entries: c.Entries})
}
