#!/usr/bin/env bash
# Says what to install where there is no Go, or one that cannot fetch the
# version named in go.mod by itself.
set -euo pipefail
cd "$(dirname "$0")/.."

want=$(awk '$1 == "go" {print $2}' go.mod)
if ! command -v go >/dev/null; then
  echo "Go is not installed (or not on PATH): install Go $want or newer, https://go.dev/doc/install" >&2
  exit 1
fi
if ! said=$(go version 2>&1); then
  echo "$said" >&2
  echo "This Go cannot be used here: install Go $want or newer, https://go.dev/doc/install" >&2
  exit 1
fi
