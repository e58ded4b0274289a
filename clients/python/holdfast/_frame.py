"""An event as an event stream has it: WHATWG HTML, "Server-sent events"."""

import json
import re

NO_EVENT_ID = -1
"""In the place of an event's id: there is none."""

MAX_FRAME = 1024 * 1024
"""The largest data accepted, in bytes (1 MiB)."""

_LINE_END = re.compile("\r\n|\n|\r")
_FORBIDDEN = re.compile("[\r\n\0]")


def sse_event(data, event=None, id=None, retry=None, *, event_id=None):
    """One whole frame of an event stream, as UTF-8 bytes with its blank line.

    data      a str or UTF-8 bytes; anything else as JSON. Each line becomes a
              `data:` line of its own, whether it ends in LF, CR or CRLF, so
              nothing in it can be taken for another field
    event     the event's name; None or "": none
    id        an int or a str; None or NO_EVENT_ID: none
    retry     whole milliseconds, 0 or more; None: none
    event_id  m0serve's name for id

    ValueError for CR, LF or NUL in event or id, for a retry that is no such
    number, and for what has no UTF-8 or JSON.

    It is for a frame that a view writes itself. `publish` takes the data as it
    is; a frame goes through `publish_frame`.
    """
    if id is None:
        id = event_id
    lines = []
    if id is not None and id != NO_EVENT_ID:
        lines.append("id: " + _plain("id", str(id)))
    if event:
        lines.append("event: " + _plain("event", event))
    if retry is not None:
        if not isinstance(retry, int) or isinstance(retry, bool) or retry < 0:
            raise ValueError("retry is %r; it is whole milliseconds, 0 or more" % (retry,))
        lines.append("retry: %d" % retry)
    lines += ["data: " + line for line in _LINE_END.split(text_of(data))]
    return ("\n".join(lines) + "\n\n").encode("utf-8")


def parse_frame(frame):
    """The events of a frame: (data, event or None, retry or None) each.

    It reads as EventSource does: bytes that are no UTF-8 become U+FFFD, comments
    and unknown fields are nothing, a block without a `data:` line is no event
    (its `retry:` goes with the next one). Otherwise than there a last block
    without its blank line counts, because a frame is whole. `id:` is not
    looked at.
    """
    if not isinstance(frame, str):
        frame = bytes(frame).decode("utf-8", "replace")
    events = []
    data, event, retry = [], None, None
    for line in _LINE_END.split(frame) + [""]:
        if line == "":
            if data:
                events.append(("\n".join(data), event, retry))
                retry = None
            data, event = [], None
            continue
        field, _, value = line.partition(":")
        if value.startswith(" "):
            value = value[1:]
        if field == "data":
            data.append(value)
        elif field == "event":
            event = value or None
        elif field == "retry" and value.isascii() and value.isdecimal():
            retry = int(value)
    return events


def _plain(name, value):
    if _FORBIDDEN.search(value):
        raise ValueError("%s has CR, LF or NUL: %r" % (name, value))
    return value


def text_of(data):
    if isinstance(data, str):
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data).decode("utf-8")
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except TypeError as error:
        raise ValueError("data cannot be written as JSON: %s" % error) from None
