# The verbs of this project; continuous integration runs the same ones.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Where the documentation is read, an address or a path: Holdfast's answers name
# its page troubleshoot.md. Recipes have it from the environment, so that nothing
# in it is taken for more than text.
DOCS := docs
export DOCS
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# What it builds for; docs/kubernetes.md says which of them the tests run on.
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

.PHONY: help build release demo test test-full soak lint bench sabotage setup go-present

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile

build: go-present ## the static binary, bin/holdfast
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION) -X 'holdfast/proxy.docsAt=$$DOCS'" -o bin/holdfast ./cmd/holdfast

release: go-present ## static binaries for each platform, and their checksums, in dist/
	@rm -rf dist && mkdir dist
	@set -e; for platform in $(PLATFORMS); do \
	  file=holdfast-$(VERSION)-$${platform/\//-}; echo "dist/$$file"; \
	  CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} \
	    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION) -X 'holdfast/proxy.docsAt=$$DOCS'" -o dist/$$file ./cmd/holdfast; \
	done
	@cd dist && sha256sum holdfast-* >SHA256SUMS && cat SHA256SUMS

demo: go-present ## Holdfast before a Django app, with a page that shows what lanes and holds do
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@exec scripts/demo.sh

setup: ## install what the tests need besides Go
	@scripts/setup.sh

test: go-present setup ## all tests, with the race detector
	@scripts/test.sh -race -timeout 15m

test-full: go-present setup ## the same and the long ones, nothing from the cache
	@HOLDFAST_FULL=1 scripts/test.sh -race -count=1 -timeout 60m

soak: go-present setup ## mixed load for half an hour (HOLDFAST_SOAK=2h for more): nothing lost or leaked
	HOLDFAST_SOAK=$${HOLDFAST_SOAK:-30m} go test -race -count=1 -timeout 0 -v -run '^TestSoak_' ./cmd/holdfast

# Staticcheck is compiled by the Go version that go.mod asks for: compiled by an
# older one it refuses the module.
lint: go-present ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); if [[ -n $$unformatted ]]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	GOTOOLCHAIN=$$(go env GOVERSION) go run $(STATICCHECK) ./...

bench: go-present ## measure, and print a table
	go run ./bench

sabotage: go-present setup ## break one rule at a time; the named test must fail
	go run ./testdata/sabotage

go-present:
	@scripts/go-present.sh
