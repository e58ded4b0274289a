"""What an app really ran: one line of JSON at the start and one at the end of each request.

Switched on by the environment variable LEDGER, the name of a file. Several
processes may share it: a line is one write to a descriptor opened with
O_APPEND, so lines never mix. The times are CLOCK_MONOTONIC, which all
processes of a machine share, so a reader can compute afterwards how many
requests ran at once, which one ran twice and which one a kill cut short (a
start without an end).

An end is written before the last byte of the answer leaves the process. If it
were written after, a proxy that gives the slot on at the last byte would look
as if it ran one request too many.
"""

import json
import os
import threading
import time
import uuid

_file = os.environ.get("LEDGER")
_fd = os.open(_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if _file else None


class Entry:
    """One request that has started. end may be called more than once."""

    def __init__(self, request_id, method, path):
        self._fields = {"id": request_id or uuid.uuid4().hex, "method": method, "path": path}
        self._ended = False
        self._write("start")

    def end(self):
        if not self._ended:
            self._ended = True
            self._write("end")

    def _write(self, ev):
        if _fd is None:
            return
        line = {
            "ev": ev,
            **self._fields,
            "pid": os.getpid(),
            "thread": threading.get_native_id(),
            "t": time.monotonic_ns(),
        }
        os.write(_fd, json.dumps(line).encode() + b"\n")


class Pieces:
    """A streamed body that ends its entry when it is exhausted, fails or is closed.

    A class and not a generator: closing a generator that has not begun runs
    none of its code, and a client may leave before the first piece.
    """

    def __init__(self, pieces, entry):
        self._pieces = iter(pieces)
        self._entry = entry

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return next(self._pieces)
        except BaseException:  # StopIteration is one of them
            self._entry.end()
            raise

    def close(self):
        try:
            close = getattr(self._pieces, "close", None)
            if close:
                close()
        finally:
            self._entry.end()
