"""What is said of publishes that failed: a line now and then, not one each."""

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
_said = {}  # reason: (when its last line was written, how many it left out since)


def failed(channel, error):
    """Log a failed publish, each reason once in EVERY_SECONDS; the line says
    how many of its reason were left out before it."""
    now = time.monotonic()
    with _lock:
        last, left_out = _said.get(error.reason, (None, 0))
        speak = last is None or now - last >= EVERY_SECONDS
        if last is None and len(_said) >= _MOST_REASONS:
            _said.clear()
        _said[error.reason] = (now, 0) if speak else (last, left_out + 1)
    if speak:
        more = " (and %d more since the last such line)" % left_out if left_out else ""
        log.error("publish to %.300r failed: %s%s", channel, error, more)


def _after_fork():
    # Another thread may have held the lock when the process was copied.
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
