#!/usr/bin/env bash
# The demo: the help desk of testdata/mixed, its pages under gunicorn and its
# streams under uvicorn, and bin/holdfast in front of both, until Ctrl-C or
# SIGTERM. What is killed meanwhile is started again, so that the page can show
# what becomes of its connections. `make demo` builds the binary first.
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
names=(gunicorn uvicorn holdfast) # in the order of their start; they end the other way round
declare -A pids=() started=()

running() { kill -0 "$1" 2>/dev/null; }

end() { # end PID: asks, and after ten seconds insists, its children included
  running "$1" || return 0
  kill -TERM "$1" 2>/dev/null || true
  for ((i = 0; i < 100; i++)); do
    running "$1" || break
    sleep 0.1
  done
  kill -KILL -- "-$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

finish() {
  local status=$?
  trap - EXIT
  trap '' INT TERM HUP
  for ((n = ${#names[@]} - 1; n >= 0; n--)); do
    if [[ -n ${pids[${names[n]}]:-} ]]; then
      end "${pids[${names[n]}]}"
    fi
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

# free_ports PREFERRED...: prints as many free ports, the preferred ones where they are free.
free_ports() {
  "$python" - "$@" <<'PY'
import socket
import sys

held = []
for port in map(int, sys.argv[1:]):
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

answers() { # does the page come through Holdfast?
  "$python" - "$page" <<'PY' 2>/dev/null
import sys
import urllib.request

ask = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with ask.open(sys.argv[1], timeout=5) as page:
    sys.exit(b"Holdfast demo" not in page.read())
PY
}

# Job control gives each process a group of its own, so that Ctrl-C reaches this
# script alone and the end is in its order, and so that one can be killed with
# its children.
start() { # start NAME
  local command
  case $1 in
    gunicorn) command=("$python" -m gunicorn -b "$MIXED_WSGI" -w 1 --threads 8 --graceful-timeout 2 --chdir testdata/mixed helpdesk.wsgi) ;;
    uvicorn) command=("$python" -m uvicorn --host 127.0.0.1 --port "${MIXED_ASGI#*:}" --app-dir testdata/mixed helpdesk.asgi:application) ;;
    holdfast) command=(bin/holdfast -c testdata/mixed/config.yaml) ;;
  esac
  set -m
  "${command[@]}" >>"$logs/$1.log" 2>&1 </dev/null &
  pids[$1]=$!
  set +m
  started[$1]=$SECONDS
}

ports=$(free_ports "$wanted" 5561 5562 0 0)
read -r MIXED_PORT MIXED_PUBLISH_PORT MIXED_ADMIN_PORT wsgi asgi <<<"$ports"
MIXED_WSGI=127.0.0.1:$wsgi MIXED_ASGI=127.0.0.1:$asgi
HOLDFAST_PUBLISH_URL=http://127.0.0.1:$MIXED_PUBLISH_PORT
export MIXED_PORT MIXED_PUBLISH_PORT MIXED_ADMIN_PORT MIXED_WSGI MIXED_ASGI HOLDFAST_PUBLISH_URL
page=http://127.0.0.1:$MIXED_PORT/demo/
if [[ $MIXED_PORT != "$wanted" ]]; then
  echo "demo: port $wanted is taken, using $MIXED_PORT"
fi

SECONDS=0
for name in "${names[@]}"; do
  start "$name"
done
until answers; do
  for name in "${names[@]}"; do
    running "${pids[$name]}" || fail "$name ended before the page answered"
  done
  ((SECONDS < 30)) || fail "the page did not answer within 30 s"
  sleep 0.1
done

echo "demo: $page  (open it in two tabs; Ctrl-C ends it)"
echo "demo: publish from a shell:  bin/holdfast publish announcements hello --url $HOLDFAST_PUBLISH_URL"
echo "demo: kill the app:          kill -9 -- -${pids[gunicorn]}"
echo "demo: kill Holdfast:         kill -9 -- -${pids[holdfast]}"

while :; do
  wait -n "${pids[@]}" 2>/dev/null || true
  for name in "${names[@]}"; do
    running "${pids[$name]}" && continue
    ((SECONDS - started[$name] >= 3)) || fail "$name ended right after its start"
    echo "demo: $name has ended, it is started again in 5 s"
    sleep 5
    start "$name"
    echo "demo: $name is back; to kill it again:  kill -9 -- -${pids[$name]}"
  done
done
