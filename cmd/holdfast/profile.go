package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
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

const (
	waitsSeconds     = 10 // of a profile, unless seconds= says otherwise
	waitsSecondsMost = 60
)

// profileWaits is the profile of the next seconds: what waits for locks, or for
// anything, is noted only while somebody asks, since that costs. debug=1, which
// goes with no seconds, gives what earlier profiles have noted.
func profileWaits(out http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	if seconds := query.Get("seconds"); seconds != "" {
		if n, err := strconv.Atoi(seconds); err != nil || n < 1 || n > waitsSecondsMost {
			http.Error(out, fmt.Sprintf("seconds=%s is not a number from 1 to %d", seconds, waitsSecondsMost), http.StatusBadRequest)
			return
		}
	} else if debug := query.Get("debug"); debug == "" || debug == "0" {
		query.Set("seconds", strconv.Itoa(waitsSeconds))
		request.URL.RawQuery = query.Encode()
	}
	if !waits.TryLock() {
		http.Error(out, "another profile of waits is being taken; ask again when it is done", http.StatusConflict)
		return
	}
	defer waits.Unlock()
	runtime.SetMutexProfileFraction(10)
	defer runtime.SetMutexProfileFraction(0)
	runtime.SetBlockProfileRate(10_000) // ns: shorter waits are noted now and then
	defer runtime.SetBlockProfileRate(0)
	pprof.Index(out, request)
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
