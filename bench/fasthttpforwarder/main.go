// Fasthttpforwarder is what a proxy in Go costs that is written with fasthttp as
// its examples have it: a server whose handler hands each request to a
// HostClient.
//
//	fasthttpforwarder -listen 127.0.0.1:8007 -upstream 127.0.0.1:9000 -connections 64
//
// Hop-by-hop fields are taken off both ways, which its documentation asks of a
// proxy, and that is all: nothing is checked, added, counted or queued. Bodies
// are read whole and written whole, which is fasthttp's way unless streaming is
// asked for.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/valyala/fasthttp"
)

const largestBody = 64 << 20

func main() {
	listen := flag.String("listen", "127.0.0.1:8007", "address to serve on")
	upstream := flag.String("upstream", "127.0.0.1:9000", "address to forward to")
	connections := flag.Int("connections", 64, "`connections` to the upstream at once")
	flag.Parse()
	server := newServer(*upstream, *connections)
	if err := server.ListenAndServe(*listen); err != nil {
		fmt.Fprintln(os.Stderr, "fasthttpforwarder:", err)
		os.Exit(1)
	}
}

func newServer(upstream string, connections int) *fasthttp.Server {
	client := &fasthttp.HostClient{
		Addr: upstream, MaxConns: connections, NoDefaultUserAgentHeader: true,
		DisableHeaderNamesNormalizing: true, DisablePathNormalizing: true,
		MaxResponseBodySize: largestBody,
	}
	return &fasthttp.Server{
		Handler:               func(ctx *fasthttp.RequestCtx) { forward(ctx, client) },
		MaxRequestBodySize:    largestBody,
		NoDefaultServerHeader: true, NoDefaultDate: true, NoDefaultContentType: true,
		DisableHeaderNamesNormalizing: true,
		Logger:                        silent{},
	}
}

func forward(ctx *fasthttp.RequestCtx, client *fasthttp.HostClient) {
	ctx.Request.Header.Del("Connection")
	if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
		ctx.Response.Reset()
		ctx.SetStatusCode(fasthttp.StatusBadGateway)
		return
	}
	ctx.Response.Header.Del("Connection")
}

// silent drops what the server has to say of connections that end: no peer of
// the benchmark logs them.
type silent struct{}

func (silent) Printf(string, ...any) {}
