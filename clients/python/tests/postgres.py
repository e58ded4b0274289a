"""A PostgreSQL of the tests' own, on a unix socket, and psql to ask it."""

import atexit
import functools
import glob
import os
import pwd
import shutil
import subprocess
import tempfile

from .kit import PATIENCE

SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "holds", "bus", "init.sql")


def program(name):
    """The path of one of PostgreSQL's programs, None where it is not installed."""
    return shutil.which(name) or max(glob.glob("/usr/lib/postgresql/*/bin/" + name), default=None)


def lacking():
    """What is not here that a Server needs, None if all is."""
    for name in ("initdb", "pg_ctl", "psql"):
        if program(name) is None:
            return name
    if not os.path.exists(SCHEMA):
        return "init.sql of Holdfast's sources"
    if os.geteuid() == 0 and _owner() is None:
        return "a user that may run PostgreSQL"  # it refuses root
    return None


def _owner():
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    return None


# Ends the server when the tests are gone, however they went.
_KEEPER = 'read line; "$0" -D "$1/data" -m immediate stop; rm -rf "$1"'


class Server:
    """A server with the schema of the bus in it, stopped when the tests end."""

    def __init__(self):
        self._directory = tempfile.mkdtemp(prefix="holdfast-postgres", dir="/tmp")
        self._become = None
        if os.geteuid() == 0:
            owner = _owner()
            os.chown(self._directory, owner.pw_uid, owner.pw_gid)
            self._become = functools.partial(_become, owner.pw_uid, owner.pw_gid)
        keeper = ("sh", "-c", _KEEPER, program("pg_ctl"), self._directory)
        self._keeper = subprocess.Popen(keeper, preexec_fn=self._become, start_new_session=True, cwd="/", stdin=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self._keeper.communicate)
        data = os.path.join(self._directory, "data")
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions")
        options = "-k %s -c listen_addresses= -c fsync=off" % self._directory
        self._run("pg_ctl", "-D", data, "-w", "-t", str(PATIENCE), "-l", os.path.join(self._directory, "log"), "-o", options, "start")
        with open(SCHEMA, encoding="utf-8") as file:
            self.psql(file.read())

    def _run(self, name, *arguments, text=None):
        environ = dict(os.environ, LC_ALL="C.UTF-8", HOME=self._directory)
        done = subprocess.run((program(name),) + arguments, cwd=self._directory, env=environ, preexec_fn=self._become,
                              input=None if text is None else text.encode(), stdin=subprocess.DEVNULL if text is None else None,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=True)
        if done.returncode:
            raise RuntimeError(done.stderr.decode() or done.stdout.decode())
        return done.stdout.decode().rstrip("\n")

    def psql(self, text):
        """What the statements give, without a frame. RuntimeError."""
        return self._run("psql", "-h", self._directory, "-U", "postgres", "-d", "postgres", "-XqAt", "-v", "ON_ERROR_STOP=1", text=text)


def _become(user, group):
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)


@functools.lru_cache(maxsize=None)
def server():
    """The one of all tests."""
    return Server()
