#!/usr/bin/env bash
# Makes sure of what the tests (or only the demo) need besides Go, and installs
# what is missing where it can: on Debian and its kin, as root.
#
#   scripts/setup.sh          all that the tests need
#   scripts/setup.sh demo     only what the demo needs
set -euo pipefail

python=${PYTHON:-/usr/bin/python3}

imports() { "$python" -c "import $1" 2>/dev/null; }
has_gunicorn() { imports gunicorn && [[ -x /usr/bin/gunicorn || -n ${PYTHON:-} ]]; }
# The race detector is linked with cgo.
has_c() { command -v "${CC:-gcc}" >/dev/null && [[ -e /usr/include/stdlib.h ]]; }

# Its programs stand beside PATH, a folder for each version.
has_postgresql() { compgen -G '/usr/lib/postgresql/*/bin/initdb' || command -v initdb; }

has_uwsgi_python() { compgen -G '/usr/lib/uwsgi/plugins/python3*_plugin.so'; }

missing=()
needs() { # needs PACKAGE CHECK...
  local package=$1
  shift
  "$@" >/dev/null || missing+=("$package")
}

check() {
  missing=()
  needs python3-django imports django
  needs gunicorn has_gunicorn
  needs python3-uvicorn imports uvicorn
  needs python3-wsproto imports wsproto
  if [[ ${1:-} != demo ]]; then
    needs python3-flask imports flask
    needs chromium command -v chromium
    needs iproute2 command -v ip
    needs wrk command -v wrk
    needs util-linux command -v unshare
    needs nodejs command -v node
    needs npm command -v npm
    # The servers of docs/slots.md.
    needs python3-gevent imports gevent
    needs python3-eventlet imports eventlet
    needs python3-waitress imports waitress
    needs daphne imports daphne
    needs uwsgi-core command -v uwsgi
    needs uwsgi-plugin-python3 has_uwsgi_python
    needs curl command -v curl
    needs openssl command -v openssl
    needs redis-server command -v redis-server
    needs postgresql has_postgresql
    needs nginx-light command -v nginx
    needs gcc has_c
    needs libc6-dev has_c
  fi
}

# The libraries of the Express app that the tests of GRIP run, as its lock file
# has them: installed again when that has changed.
express() {
  local app
  app=$(dirname "$0")/../testdata/apps/grip_express
  if [[ ${1:-} == demo || $app/node_modules/.package-lock.json -nt $app/package-lock.json ]]; then
    return 0
  fi
  echo "setup: installing the libraries of testdata/apps/grip_express"
  if ! npm ci --prefix "$app" --ignore-scripts --no-audit --no-fund; then
    echo "setup: npm ci failed; see above, and mend npm's way to its registry (npm config get registry)" >&2
    return 1
  fi
}

# Prometheus' own tool, for the tests of the metrics and the alert rules. Debian
# has it in a package that starts a server as it is installed: only the tool is
# taken out of it. Where it cannot be had those tests are skipped.
tool_of_prometheus() {
  if [[ ${1:-} == demo ]] || command -v promtool >/dev/null; then
    return 0
  fi
  if [[ ! -e /etc/debian_version ]] || ! command -v apt-get >/dev/null || ((EUID != 0)); then
    echo "setup: there is no promtool, so its tests are skipped; it is part of Prometheus, put it into PATH" >&2
    return 0
  fi
  echo "setup: taking promtool out of the package prometheus, into /usr/local/bin"
  local dir
  dir=$(mktemp -d)
  if (cd "$dir" && { fetch || { apt-get update && fetch; }; } &&
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xO ./usr/bin/promtool >promtool &&
    install -m 755 promtool /usr/local/bin/promtool); then
    rm -rf "$dir"
    return 0
  fi
  rm -rf "$dir"
  echo "setup: promtool could not be had; see above, or put it into PATH" >&2
  return 1
}
fetch() { apt-get -o APT::Sandbox::User=root download prometheus; }

# Tests start the servers that they need: none is to run because it was installed.
start_nothing() {
  local policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap "rm -f $policy" EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
}

# The rest, once no package is missing.
finish() { express "$@" && tool_of_prometheus "$@"; }

check "$@"
if ((${#missing[@]} == 0)); then
  finish "$@"
  exit
fi

if [[ -e /etc/debian_version ]] && command -v apt-get >/dev/null && ((EUID == 0)); then
  echo "setup: installing ${missing[*]}"
  start_nothing
  apt-get update
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
  check "$@"
  if ((${#missing[@]} == 0)); then
    finish "$@"
    exit
  fi
  echo "setup: still missing for $python after the installation: ${missing[*]}" >&2
  exit 1
fi

{
  echo "setup: missing: ${missing[*]}"
  if [[ -e /etc/debian_version ]]; then
    echo "Install them with: sudo apt-get update && sudo apt-get install ${missing[*]}"
  else
    echo "Those are Debian's names; install your system's packages of the same programs, so that"
    echo "$python can import them and /usr/bin/gunicorn is there. For the demo alone, a virtual"
    echo "environment does as well: pip install 'django<5' gunicorn uvicorn wsproto, then PYTHON=path/to/its/python make demo"
  fi
} >&2
exit 1
