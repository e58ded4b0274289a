#!/usr/bin/env bash
# go test with a closing count of packages, once more for holds served by
# goroutines, as on other systems than Linux, the tests of the manifests in
# their own module, and the Python client's. The arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

python=${PYTHON:-/usr/bin/python3}
status=0
go test "$@" ./... 2>&1 | tee "$log" || status=$?
go test "$@" -tags holdfast_goroutines ./holds || status=$?
(cd examples/kubernetes/check && go test ./...) || status=$?
(cd clients/python && PYTHONDONTWRITEBYTECODE=1 "$python" -m unittest -q) || status=$?

count() { grep -c "$1" "$log" || true; }
failed=$(count $'^FAIL\t')
echo "packages: $(count $'^ok  \t') passed, $failed failed"
exit "$status"
