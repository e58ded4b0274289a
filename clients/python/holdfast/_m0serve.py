"""What apps written for m0serve call. That server handed descriptors and a
counter to its workers; Holdfast is another process, with an address."""

import os
import threading
import time

from ._error import PublishError
from ._frame import NO_EVENT_ID, parse_frame
from ._publish import publish_each

_lock = threading.Lock()
_last_id = 0


def publish_frame(channel, frame, event_id=NO_EVENT_ID, *, raise_errors=False):
    """Publish a ready frame of an event stream (bytes or str). 1 or 0.

    The frame is taken apart, and its `data:`, `event:` and `retry:` lines are
    published: sockets and long-polls get the data, streams a frame with the
    same fields. Its `id:` lines and event_id count for nothing, because
    Holdfast numbers every event; comments are left out; bytes that are no
    UTF-8 become U+FFFD, as they would in the browser.

    A frame of several events is published one by one, in order, up to the
    first that is not accepted: 0 means that not all were. A frame without a
    `data:` line is no event, for EventSource either: 0.

    Otherwise as `publish`.
    """

    def events():
        try:
            found = parse_frame(frame)
        except (TypeError, ValueError) as error:
            raise PublishError("bad_request", "the frame cannot be read: %s" % error) from error
        if not found:
            raise PublishError("bad_request", "the frame has no data line, so it is no event")
        return found

    return publish_each(channel, raise_errors, events)[0]


def next_event_id():
    """An increasing int: microseconds since 1970, or one more than the last.

    It is unique in this process only and is not the id that any event will
    get: Holdfast numbers events as they are published, and `publish_with_id`
    says which number it was. For frames that a view writes itself.
    """
    global _last_id
    with _lock:
        _last_id = max(_last_id + 1, time.time_ns() // 1000)
        return _last_id


def bus_write_fds():
    """[]: there is no descriptor to inherit. A child process publishes like
    any other, through Holdfast's address; nothing has to be passed to it."""
    return []


def child_fds():
    """[], so that `pass_fds=child_fds()` passes nothing: see bus_write_fds."""
    return []


def _after_fork():
    # Another thread may have held the lock when the process was copied.
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
