// Caddy is Caddy with what the benchmark of proxied requests needs of it: its
// HTTP server and its reverse proxy. It is a module of its own, so that what
// Caddy needs is not in Holdfast's go.sum.
//
//	go run ./bench proxied --only caddy,holdfast
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func main() { caddycmd.Main() }
