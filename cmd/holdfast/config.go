package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"time"
)

// fileConfig is the whole YAML, defaults applied, as the wiring composes the packages' own configurations from it.
// docs/configuration.md has a row for each key. A nil pointer is a key left out where that differs from zero.
type fileConfig struct {
	Instance       string                    `yaml:"instance"`
	Listen         addresses                 `yaml:"listen"`
	TrustedProxies []string                  `yaml:"trusted_proxies"`
	Upstreams      map[string]upstreamConfig `yaml:"upstreams"`
	Lanes          map[string]laneConfig     `yaml:"lanes" required:"{web: {upstream: app, slots: 8}}"`
	Routes         []routeConfig             `yaml:"routes" required:"[{match: /, lane: web}]"`
	Limits         limitsConfig              `yaml:"limits"`
	Holds          holdsConfig               `yaml:"holds"`
	Grip           gripConfig                `yaml:"grip" secret:"true"`
	Publish        keyedListener             `yaml:"publish" secret:"true"`
	Admin          keyedListener             `yaml:"admin" secret:"true"`
	Bus            busConfig                 `yaml:"bus" secret:"true"` // its URL may hold a password
	Drain          drainConfig               `yaml:"drain"`
	Health         healthConfig              `yaml:"health"`
	Log            logConfig                 `yaml:"log"`

	// warnings are what can be served and is probably not meant, one sentence each.
	warnings []string
	source   *source
}

type upstreamConfig struct {
	Targets        []string     `yaml:"targets" required:"[http://127.0.0.1:8000]"`
	Concurrency    *int         `yaml:"concurrency" min:"1" max:"65535"`
	StartTimeout   Duration     `yaml:"start_timeout"`
	Park           Duration     `yaml:"park"`
	AbandonLimit   Duration     `yaml:"abandon_limit" min:"10ms"`
	ConnectTimeout Duration     `yaml:"connect_timeout" min:"10ms"`
	Keepalive      string       `yaml:"keepalive" oneof:"auto off"`
	Health         targetHealth `yaml:"health"`
}

// targetHealth is what /ready asks a target: OPTIONS * when Path is "*".
type targetHealth struct {
	Path     string   `yaml:"path"`
	Host     string   `yaml:"host"`
	Interval Duration `yaml:"interval" min:"10ms"`
}

// laneConfig is a lane of either kind. Queue, QueueTimeout and Streaming are a request lane's, Idle is a stream lane's;
// there ResponseTimeout ends with the head.
type laneConfig struct {
	Upstream        string   `yaml:"upstream" required:"app"`
	Kind            string   `yaml:"kind" oneof:"request stream"`
	Slots           int      `yaml:"slots" required:"8" min:"1" max:"65535"`
	Queue           int      `yaml:"queue" min:"0" max:"1000000"`
	QueueTimeout    Duration `yaml:"queue_timeout" min:"1ms"`
	ResponseTimeout Duration `yaml:"response_timeout" min:"10ms"`
	Streaming       string   `yaml:"streaming" oneof:"refuse forward"`
	Idle            Duration `yaml:"idle" min:"10ms" zero:"no limit"`
}

// routeConfig has exactly one of Lane, Files, Respond and Grant. MessagePath "" is the one of holdsConfig. OverHTTP is
// there after the check where it is true, also by default.
type routeConfig struct {
	Match       string         `yaml:"match" required:"/"`
	Lane        *string        `yaml:"lane"`
	Files       *filesConfig   `yaml:"files"`
	Respond     *respondConfig `yaml:"respond"`
	Grant       *grantConfig   `yaml:"grant"`
	BodyBytes   *Size          `yaml:"body_bytes" min:"1" max:"1TiB"`
	MessagePath string         `yaml:"message_path"`
	OverHTTP    *bool          `yaml:"over_http"`
}

// filesConfig serves a directory; Internal only to an X-Accel-Redirect of the application.
type filesConfig struct {
	Dir          string            `yaml:"dir" required:"/srv/static"`
	CacheControl string            `yaml:"cache_control"`
	Headers      map[string]string `yaml:"headers"`
	Internal     bool              `yaml:"internal"`
}

type respondConfig struct {
	Status  int               `yaml:"status" min:"200" max:"599"`
	Body    string            `yaml:"body"`
	Headers map[string]string `yaml:"headers"`
}

// grantConfig names the variable that holds the key; Cookie is the session's.
type grantConfig struct {
	KeyEnv string `yaml:"key_env" required:"GRANT_KEY"`
	Cookie string `yaml:"cookie"`
}

// limitsConfig bounds what clients take. Connections 0 is by the descriptor limit.
type limitsConfig struct {
	HeaderBytes   Size        `yaml:"header_bytes" min:"1KiB" max:"1MiB"`
	HeaderTimeout Duration    `yaml:"header_timeout" min:"10ms"`
	BodyBytes     Size        `yaml:"body_bytes" min:"1" max:"1TiB"`
	BodyTimeout   Duration    `yaml:"body_timeout" min:"10ms"`
	Memory        Size        `yaml:"memory" min:"1MiB" max:"1TiB"`
	Spool         spoolConfig `yaml:"spool"`
	IdleTimeout   Duration    `yaml:"idle_timeout" min:"10ms"`
	Connections   int         `yaml:"connections" min:"0"`
}

// spoolConfig is where bodies go that memory has no room for. Dir "" is the system's; Bytes 0 is no spool.
type spoolConfig struct {
	Dir   string `yaml:"dir"`
	Bytes Size   `yaml:"bytes" max:"1024TiB"`
}

// holdsConfig bounds the clients that are kept on the application's behalf. Limit 0 is by the descriptor limit.
type holdsConfig struct {
	Dialects     []string      `yaml:"dialects" oneof:"m0 grip"`
	Heartbeat    Duration      `yaml:"heartbeat" min:"10ms" zero:"none"`
	OutboxBytes  Size          `yaml:"outbox_bytes" min:"1" max:"1GiB"`
	WriteStall   Duration      `yaml:"write_stall" min:"10ms"`
	Limit        int           `yaml:"limit" min:"0"`
	MaxAge       Duration      `yaml:"max_age" min:"10ms" zero:"no limit"`
	Journal      journalConfig `yaml:"journal"`
	MessagePath  string        `yaml:"message_path"`
	MessageBytes Size          `yaml:"message_bytes" min:"1" max:"1GiB"`
	Origins      oneOrList     `yaml:"origins"`
}

// journalConfig bounds the recent events of a channel, and the bytes of all channels together.
type journalConfig struct {
	Events int      `yaml:"events" min:"1" max:"1000000"`
	Bytes  Size     `yaml:"bytes" min:"1KiB" max:"1TiB"`
	Age    Duration `yaml:"age" min:"10ms"`
}

// gripConfig signs Grip-Sig. Key "" is one made at the start; secret reads the others.
type gripConfig struct {
	Iss string `yaml:"iss"`
	Key string `yaml:"key" secret:"true"`
}

// keyedListener is a listener for programs. Without keys it is for this machine, and for who has a certificate where it
// asks for one; an address "" is none.
type keyedListener struct {
	Listen address  `yaml:"listen"`
	Keys   []string `yaml:"keys" secret:"true"`
}

// drainConfig has ONE bound, counted from the start of the drain; Delay is part of it.
type drainConfig struct {
	Delay Duration `yaml:"delay"`
	Bound Duration `yaml:"bound" min:"10ms"`
}

// healthConfig names Holdfast's own answers on the public listener; "" = not there.
type healthConfig struct {
	Path      string `yaml:"path"`
	ReadyPath string `yaml:"ready_path"`
}

type logConfig struct {
	Level  string `yaml:"level" oneof:"debug info warn error"`
	Access bool   `yaml:"access"`
	Format string `yaml:"format" oneof:"json console"`
}

func (u *upstreamConfig) setDefaults() {
	u.StartTimeout = Duration(60 * time.Second)
	u.Park = Duration(10 * time.Second)
	u.AbandonLimit = Duration(10 * time.Minute)
	u.ConnectTimeout = Duration(2 * time.Second)
	u.Keepalive = "auto"
	u.Health = targetHealth{Path: "*", Host: "localhost", Interval: Duration(2 * time.Second)}
}

func (l *laneConfig) setDefaults() {
	l.Kind = "request"
	l.Queue = 512
	l.QueueTimeout = Duration(10 * time.Second)
	l.ResponseTimeout = Duration(60 * time.Second)
	l.Streaming = "refuse"
}

func (r *respondConfig) setDefaults() { r.Status = 200 }

// The name is the one that Django gives its session cookie.
func (g *grantConfig) setDefaults() { g.Cookie = "sessionid" }

// defaults is the configuration of an empty file: what holds where a key is left out. It serves nothing yet.
func defaults() *fileConfig {
	return &fileConfig{
		Listen: plainAddresses(":8080"),
		Limits: limitsConfig{
			HeaderBytes:   16 << 10,
			HeaderTimeout: Duration(10 * time.Second),
			BodyBytes:     32 << 20,
			BodyTimeout:   Duration(30 * time.Second),
			Memory:        256 << 20,
			Spool:         spoolConfig{Bytes: 4 << 30},
			IdleTimeout:   Duration(75 * time.Second),
		},
		Holds: holdsConfig{
			Dialects:     []string{"m0", "grip"},
			Heartbeat:    Duration(15 * time.Second),
			OutboxBytes:  64 << 10,
			WriteStall:   Duration(30 * time.Second),
			Journal:      journalConfig{Events: 256, Bytes: 64 << 20, Age: Duration(10 * time.Minute)},
			MessagePath:  "/ws/message",
			MessageBytes: 1 << 20,
			Origins:      oneOrList{"same-host"},
		},
		Grip:    gripConfig{Iss: "holdfast"},
		Publish: keyedListener{Listen: address{Address: "127.0.0.1:5561"}},
		Admin:   keyedListener{Listen: address{Address: "127.0.0.1:5562"}},
		Bus:     busConfig{URL: "memory", Ready: "start"},
		Drain:   drainConfig{Bound: Duration(25 * time.Second)},
		Health:  healthConfig{Path: "/health", ReadyPath: "/ready"},
		Log:     logConfig{Level: "info", Format: "json"},
	}
}

// configBytes bounds the file: a larger one is not a configuration (a device, a log named by mistake).
const configBytes = 4 << 20

// loadConfig reads the file and gives it back checked and complete, its warnings with it. env looks a variable up,
// as os.LookupEnv does. Every error is a *configError.
func loadConfig(path string, env func(string) (string, bool)) (*fileConfig, error) {
	data, err := readConfig(path)
	if err != nil {
		return nil, &configError{[]string{fmt.Sprintf("%s: cannot be read: %v (name the file with -c or HOLDFAST_CONFIG)", path, err)}}
	}
	config := defaults()
	config.source = newSource(path, env)
	if root := config.source.parse(data); root != nil {
		(&decoder{config.source}).decode("", root, reflect.ValueOf(config).Elem(), "")
	} else if len(config.source.faults) == 0 {
		config.source.wrong("", "is empty (write at least upstreams, lanes and routes)")
	}
	// A file that did not decode has gaps, and checks across it would find faults that are not there.
	if err := config.source.err(); err != nil {
		return nil, err
	}
	config.check()
	if err := config.source.err(); err != nil {
		return nil, err
	}
	return config, nil
}

func readConfig(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, reason(err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, configBytes+1))
	if err == nil && len(data) > configBytes {
		err = fmt.Errorf("it is larger than %s", Size(configBytes))
	}
	return data, reason(err)
}

// reason is an error without the path that the sentence around it already names.
func reason(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// quickSlots is what `serve --upstream` runs at once when --slots is left out.
const quickSlots = 8

// quickConfig is the configuration of `serve --upstream`: one lane named default, on every path, that forwards endless
// answers. No listen address means the default one; slots is quickSlots when the flag is left out, and 0 is refused.
func quickConfig(upstream string, listen []string, slots int) (*fileConfig, error) {
	config := defaults()
	config.source = newSource("", os.LookupEnv)
	config.source.flags = map[string]string{
		"upstreams.app.targets[0]": "--upstream",
		"lanes.default.slots":      "--slots",
	}
	if len(listen) > 0 {
		config.Listen = plainAddresses(listen...)
	}
	for i := range config.Listen {
		config.source.flags[item("listen", i)] = "--listen"
	}
	var app upstreamConfig
	app.setDefaults()
	app.Targets = []string{upstream}
	var lane laneConfig
	lane.setDefaults()
	lane.Upstream, lane.Slots, lane.Streaming = "app", slots, "forward"
	if problem := outside(reflect.ValueOf(slots), fieldTag[laneConfig]("Slots")); problem != "" {
		config.source.wrong("lanes.default.slots", "%q %s", fmt.Sprint(slots), problem)
	}
	name := "default"
	config.Upstreams = map[string]upstreamConfig{"app": app}
	config.Lanes = map[string]laneConfig{name: lane}
	config.Routes = []routeConfig{{Match: "/", Lane: &name}}
	config.source.order = map[string][]string{"upstreams": {"app"}, "lanes": {name}}
	config.check()
	if err := config.source.err(); err != nil {
		return nil, err
	}
	return config, nil
}

func fieldTag[T any](field string) reflect.StructTag {
	f, _ := reflect.TypeFor[T]().FieldByName(field)
	return f.Tag
}

// laneNames and upstreamNames are in file order: slots are dealt round the targets in it.
func (c *fileConfig) laneNames() []string     { return c.source.order["lanes"] }
func (c *fileConfig) upstreamNames() []string { return c.source.order["upstreams"] }
