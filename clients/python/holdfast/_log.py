"""What is said of requests that failed: a line now and then, not one each."""

import logging
import os
import threading
import time

log = logging.getLogger("holdfast")

# With Holdfast away, every view that publishes fails in the same way.
EVERY_SECONDS = 10.0

# Reasons are words of closed lists; whatever else answers on the port might
# make up any number of them.
_MOST_REASONS = 64

_lock = threading.Lock()
_said = {}  # (verb, reason): (when its last line was written, how many it left out since)


def failed(verb, what, error):
    """Log what failed, as "publish to 'news' failed: why", each reason of a verb
    once in EVERY_SECONDS; the line says how many like it were left out before it."""
    kind = verb, error.reason
    now = time.monotonic()
    with _lock:
        last, left_out = _said.get(kind, (None, 0))
        speak = last is None or now - last >= EVERY_SECONDS
        if last is None and len(_said) >= _MOST_REASONS:
            _said.clear()
        _said[kind] = (now, 0) if speak else (last, left_out + 1)
    if speak:
        more = " (and %d more since the last such line)" % left_out if left_out else ""
        log.error("%s %.300r failed: %s%s", verb, what, error, more)


def _after_fork():
    # Another thread may have held the lock when the process was copied.
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
