#!/usr/bin/env bash
# go test with a closing count of packages. The arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

status=0
go test "$@" ./... 2>&1 | tee "$log" || status=$?

count() { grep -c "$1" "$log" || true; }
failed=$(count $'^FAIL\t')
echo "packages: $(count $'^ok  \t') passed, $failed failed"
exit "$status"
