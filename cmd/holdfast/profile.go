package main

import (
	"bytes"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strings"
	"sync"

	"holdfast/proxy"
)

// profileAnswer runs a handler of net/http/pprof.
func profileAnswer(asked *proxy.Asked) proxy.Respond {
	request, err := http.NewRequest(asked.Method, asked.Path+"?"+asked.Query, nil)
	if err != nil {
		return proxy.Refuse("bad_request", err.Error())
	}
	out := &recorded{header: make(http.Header), status: 200}
	switch name := strings.TrimPrefix(asked.Path, "/debug/pprof/"); name {
	case "cmdline":
		pprof.Cmdline(out, request)
	case "profile":
		pprof.Profile(out, request)
	case "symbol":
		pprof.Symbol(out, request)
	case "trace":
		pprof.Trace(out, request)
	case "mutex", "block":
		profileWaits(out, request)
	default:
		pprof.Index(out, request)
	}
	respond := proxy.Respond{Status: out.status, Body: out.body.Bytes()}
	for name, values := range out.header {
		if name != "Content-Length" {
			respond.Fields = append(respond.Fields, name, values[0])
		}
	}
	return respond
}

// waits is held by who has the runtime note what is waited for.
var waits sync.Mutex

// profileWaits is the profile of the next seconds (default 10): what waits for
// locks, or for anything, is noted only while somebody asks, since that costs.
// debug=1, which goes with no seconds, gives what earlier profiles have noted.
func profileWaits(out http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	if query.Get("debug") == "" && query.Get("seconds") == "" {
		query.Set("seconds", "10")
		request.URL.RawQuery = query.Encode()
	}
	waits.Lock()
	defer waits.Unlock()
	runtime.SetMutexProfileFraction(10)
	runtime.SetBlockProfileRate(10_000) // ns: shorter waits are noted now and then
	pprof.Index(out, request)
	runtime.SetBlockProfileRate(0)
	runtime.SetMutexProfileFraction(0)
}

// recorded is an answer of net/http kept in memory.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(status int)      { r.status = status }
func (r *recorded) Write(p []byte) (int, error) { return r.body.Write(p) }
