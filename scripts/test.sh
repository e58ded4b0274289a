#!/usr/bin/env bash
# go test with a closing count of packages, once more for holds served by
# goroutines, as on other systems than Linux, the tests of the manifests in
# their own module, and the Python client's. The arguments go to go test. Last
# comes one line of JSON, also in bin/figures.json: what tests measured. No test
# fails by it; null is what none has measured yet.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Tests write what they measure here, a key and a value a line. It stands beside
# the cached results of tests, and is as old as they are: a test that is not run
# again measures nothing, and its last figure is the present one.
export HOLDFAST_FIGURES=${HOLDFAST_FIGURES:-$(go env GOCACHE)/holdfast-figures}

mkdir -p "$(dirname "$HOLDFAST_FIGURES")"
touch "$HOLDFAST_FIGURES"
older=$(tail -n 100 "$HOLDFAST_FIGURES") # enough for the last of each key
echo "$older" >"$HOLDFAST_FIGURES"

python=${PYTHON:-/usr/bin/python3}
status=0
go test "$@" ./... 2>&1 | tee "$log" || status=$?
HOLDFAST_FIGURES='' go test "$@" -tags holdfast_goroutines ./holds || status=$?
(cd examples/kubernetes/check && go test ./...) || status=$?
(cd clients/python && PYTHONDONTWRITEBYTECODE=1 "$python" -m unittest -q) || status=$?

figures() {
  awk -v version="$(git describe --tags --always --dirty 2>/dev/null || echo dev)" -v date="$(date -u +%FT%TZ)" '
    $2 ~ /^[0-9.]+$/ { last[$1] = $2 }
    END {
      printf "{\"version\":\"%s\",\"date\":\"%s\"", version, date
      n = split("isolation_p50_ms isolation_p99_ms health_worst_ms relay_ms drain_s bytes_per_hold", keys, " ")
      for (i = 1; i <= n; i++) printf ",\"%s\":%s", keys[i], (keys[i] in last) ? last[keys[i]] : "null"
      print "}"
    }' "$HOLDFAST_FIGURES"
}

count() { grep -c "$1" "$log" || true; }
failed=$(count $'^FAIL\t')
echo "packages: $(count $'^ok  \t') passed, $failed failed"
mkdir -p bin
figures | tee bin/figures.json
exit "$status"
