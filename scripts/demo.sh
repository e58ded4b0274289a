#!/usr/bin/env bash
# The demo: two gunicorn processes of testdata/apps/django and bin/holdfast in
# front of them, until Ctrl-C or SIGTERM. `make demo` builds the binary first.
#
#   DEMO_PORT=9000 make demo    another port than 8080
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-/usr/bin/python3}
wanted=${DEMO_PORT:-8080}
if [[ ! $wanted =~ ^[0-9]{1,5}$ ]] || ((10#$wanted < 1 || 10#$wanted > 65535)); then
  echo "demo: DEMO_PORT=$wanted is not a port: give a number from 1 to 65535" >&2
  exit 1
fi
wanted=$((10#$wanted))
logs=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-demo.XXXXXX")
pids=()

running() { kill -0 "$1" 2>/dev/null; }

end() { # end PID: asks, and after ten seconds insists
  running "$1" || return 0
  kill -TERM "$1" 2>/dev/null || true
  for ((i = 0; i < 100; i++)); do
    running "$1" || break
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

finish() {
  local status=$?
  trap - EXIT
  trap '' INT TERM HUP
  for ((n = ${#pids[@]} - 1; n >= 0; n--)); do
    end "${pids[n]}"
  done
  if ((status == 0)); then
    rm -rf "$logs"
  else
    echo "demo: the logs are in $logs" >&2
  fi
  exit "$status"
}
trap finish EXIT
trap 'exit 0' INT TERM HUP

fail() {
  echo "demo: $1" >&2
  tail -n 20 "$logs"/*.log >&2 || true
  exit 1
}

# free_ports PREFERRED: prints three free ports, the first the preferred one if it is free.
free_ports() {
  "$python" - "$1" <<'PY'
import socket
import sys

held = []
for port in (int(sys.argv[1]), 0, 0):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("127.0.0.1", port))
    except OSError:
        s.bind(("127.0.0.1", 0))
    held.append(s)
print(*(s.getsockname()[1] for s in held))
PY
}

answers() { # answers PORT: does the page come through Holdfast?
  "$python" - "$1" <<'PY' 2>/dev/null
import sys
import urllib.request

ask = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with ask.open(f"http://127.0.0.1:{sys.argv[1]}/", timeout=5) as page:
    sys.exit(b"Holdfast" not in page.read())
PY
}

ports=$(free_ports "$wanted")
read -r DEMO_PORT DEMO_APP_PORT DEMO_SHARED_PORT <<<"$ports"
export DEMO_PORT DEMO_APP_PORT DEMO_SHARED_PORT
if [[ $DEMO_PORT != "$wanted" ]]; then
  echo "demo: port $wanted is taken, using $DEMO_PORT"
fi

# Job control gives each process a group of its own, so that Ctrl-C reaches this
# script alone and the end is in its order: Holdfast first, the apps after it.
set -m
for app in "app:$DEMO_APP_PORT" "shared:$DEMO_SHARED_PORT"; do
  "$python" -m gunicorn -b "127.0.0.1:${app#*:}" -w 1 --threads 8 --graceful-timeout 2 \
    --chdir testdata/apps/django site_wsgi:application >"$logs/${app%:*}.log" 2>&1 </dev/null &
  pids+=($!)
done
bin/holdfast -c testdata/demo/config.yaml >"$logs/holdfast.log" 2>&1 </dev/null &
pids+=($!)
set +m

SECONDS=0
until answers "$DEMO_PORT"; do
  for pid in "${pids[@]}"; do
    running "$pid" || fail "a process of the demo ended before the page answered"
  done
  ((SECONDS < 30)) || fail "the page did not answer within 30 s"
  sleep 0.1
done

echo "demo: http://127.0.0.1:$DEMO_PORT/  (Ctrl-C ends it)"
wait -n "${pids[@]}" || true
fail "a process of the demo ended by itself"
