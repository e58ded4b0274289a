// Package holders starts the servers that hold clients, so that benchmarks can
// compare them:
//
//	holdfast    in front of an app that answers with M0's instructions
//	pushpin     in front of the same app, that answers with GRIP's
//	nchan       nginx's module; its subscriber locations need no app
//	barewrites  descriptors in a slice and a loop of write(2): the floor
//
//	server, err := holders.Start(ctx, bench, holders.Nchan, holders.Settings{Holds: 5000})
//	defer server.Stop()
//	... open clients at server.Clients, server.Path(false) ...
//	err = server.Publish(ctx, 7, data)
//	used, err := server.CPU()
//
// Go programs have one core (GOMAXPROCS=1), nginx one worker. Pushpin has the
// processes and threads that it comes with and may use all cores. Settings that
// differ from a peer's defaults stand with their source in the configuration
// files beside this one.
package holders

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"holdfast/bench/peer"
)

// The servers, in the order of the rounds.
const (
	Holdfast   = "holdfast"
	Pushpin    = "pushpin"
	Nchan      = "nchan"
	Barewrites = "barewrites"
)

// All are their names.
func All() []string { return []string{Holdfast, Nchan, Pushpin, Barewrites} }

// Available are those whose programs are installed.
func Available() []string {
	return slices.DeleteFunc(All(), func(name string) bool {
		switch name {
		case Pushpin:
			return !peer.Installed(peer.Pushpin) || !peer.Installed(peer.Zurl)
		case Nchan:
			_, err := os.Stat(peer.NchanModule)
			return err != nil || !peer.Installed(peer.Nginx)
		}
		return false
	})
}

var (
	//go:embed holdfast.yaml
	holdfastConfig string
	//go:embed nchan.conf
	nchanConfig string
	//go:embed pushpin.conf
	pushpinConfig string
	//go:embed pushpin.routes
	pushpinRoutes string
	//go:embed zurl.conf
	zurlConfig string

	oneCore = []string{"GOMAXPROCS=1"}
)

// Settings are one server's.
type Settings struct {
	Holds     int  // that there has to be room for
	Heartbeat int  // seconds; 0: none
	Socket    bool // its clients are WebSockets: what publishing has to say to Pushpin

	// App is the address of an app that is there already, and AppPath what is
	// asked of it, without the channel; "": the null app is started.
	App        string
	AppPath    string
	AppProcess *peer.Process // that serves App, for AppCPU; the caller stops it
	Slots      int           // requests at the app at once; 0: 64
	// Authorize has Nchan ask the app before it holds a client, as the others do.
	Authorize bool
}

// Server is one that runs.
type Server struct {
	Name    string
	Clients string // address

	processes []*peer.Process
	app       *peer.Process // nil: there is none
	appOurs   bool
	stream    string // path, with %d for the channel's number
	socket    string
	publish   func(channel int, data string) (url, body string)
	client    *http.Client
}

// places are what configurations are filled in with.
type places struct {
	Dir, Clients, Publish, App, AppPath, Module string
	PublishHost, PublishPort                    string
	Root, Authorize                             bool
	Descriptors, Heartbeat, Slots               int
}

// Descriptors is how many a server needs for n holds: its app's connections,
// publishers and a reserve beside them.
func Descriptors(n int) int { return n + 3000 }

// Start starts the server and, before it, its app. It returns when ten holds one
// after the other were opened and closed again.
func Start(ctx context.Context, bench *peer.Bench, name string, settings Settings) (*Server, error) {
	at, err := newPlaces(bench, settings)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: name, Clients: at.Clients, client: &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
	}}
	s.app = settings.AppProcess
	err = s.start(ctx, bench, name, settings, at)
	if err == nil {
		err = s.holdsTen(ctx, settings.Socket)
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

func newPlaces(bench *peer.Bench, settings Settings) (places, error) {
	free, err := peer.FreeAddresses(3)
	if err != nil {
		return places{}, err
	}
	dir, err := os.MkdirTemp(bench.Dir(), "s") // short: it is in the names of sockets
	if err != nil {
		return places{}, err
	}
	at := places{
		Dir: dir, Clients: free[0], Publish: free[1], App: free[2], AppPath: settings.AppPath, Module: peer.NchanModule,
		Root: os.Geteuid() == 0, Authorize: settings.Authorize,
		Descriptors: Descriptors(settings.Holds), Heartbeat: settings.Heartbeat, Slots: settings.Slots,
	}
	if at.Slots == 0 {
		at.Slots = 64
	}
	if settings.App != "" {
		at.App = settings.App
	}
	at.PublishHost, at.PublishPort, err = net.SplitHostPort(at.Publish)
	return at, err
}

func (s *Server) start(ctx context.Context, bench *peer.Bench, name string, settings Settings, at places) error {
	asksApp := name == Holdfast || name == Pushpin || name == Nchan && settings.Authorize
	if asksApp && settings.App == "" {
		if err := s.startApp(ctx, bench, at); err != nil {
			return err
		}
	}
	switch name {
	case Holdfast:
		return s.startHoldfast(ctx, bench, at)
	case Pushpin:
		return s.startPushpin(ctx, bench, settings.Socket, at)
	case Nchan:
		return s.startNchan(ctx, bench, at)
	case Barewrites:
		return s.startBarewrites(ctx, bench, at)
	}
	return fmt.Errorf("no server %q", name)
}

func (s *Server) startApp(ctx context.Context, bench *peer.Bench, at places) error {
	program, err := bench.Build(ctx, "bench/holdapp")
	if err != nil {
		return err
	}
	s.appOurs = true
	s.app, err = bench.Start("holdapp", oneCore, program, "-listen", at.App, "-heartbeat", fmt.Sprint(at.Heartbeat))
	if err != nil {
		return err
	}
	_, err = s.app.WaitReady(ctx, "http://"+at.App+"/")
	return err
}

// add starts one of the server's processes.
func (s *Server) add(bench *peer.Bench, env []string, program string, args ...string) (*peer.Process, error) {
	process, err := bench.Start(s.Name, env, program, args...)
	if err == nil {
		s.processes = append(s.processes, process)
	}
	return process, err
}

// Path is that of a hold, with %d for its channel's number.
func (s *Server) Path(socket bool) string {
	if socket {
		return s.socket
	}
	return s.stream
}

// Stop ends the server and its app.
func (s *Server) Stop() {
	s.client.CloseIdleConnections()
	for _, process := range slices.Backward(s.processes) {
		process.Stop()
	}
	if s.appOurs && s.app != nil {
		s.app.Stop()
	}
}

// CPU is the time that the server's processes have run so far, without the app.
func (s *Server) CPU() (time.Duration, error) {
	var sum time.Duration
	for _, process := range s.processes {
		used, err := process.CPU()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// AppCPU is the app's; 0 where nobody asks one.
func (s *Server) AppCPU() (time.Duration, error) {
	if s.app == nil {
		return 0, nil
	}
	return s.app.CPU()
}

// Memory is what the server's processes have in memory, without the app.
func (s *Server) Memory() (peer.Memory, error) {
	var sum peer.Memory
	for _, process := range s.processes {
		one, err := process.Memory()
		if err != nil {
			return peer.Memory{}, err
		}
		sum.PSS += one.PSS
		sum.RSS += one.RSS
	}
	return sum, nil
}

var errNotHeld = errors.New("not held")
