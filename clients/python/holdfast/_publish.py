"""Publishing: one POST on the thread's own connection, and what it answered."""

import base64
import json
import threading
import time

from . import _log, _settings
from ._connection import Connection
from ._error import PublishError, Unsent
from ._frame import MAX_FRAME, NO_EVENT_ID


def publish(channel, data, event=None, *, raise_errors=False):
    """Publish one event. 1: Holdfast accepted it, 0: not.

    channel       a name, or a list or tuple of names
    data          a str is published as it is; bytes, bytearray and memoryview
                  as bytes (a binary message to sockets); anything else as JSON.
                  At most MAX_FRAME bytes, a str counted in UTF-8
    event         the event's name for EventSource, None for none
    raise_errors  True: PublishError in place of 0

    1 means that the event has its number and its place in the journal, whether
    or not anybody holds the channel. 0 means that no answer said so. Nearly
    always it was not published then; where that cannot be known,
    PublishError.uncertain is True.

    It raises nothing into a view, whatever the arguments, unless asked; what
    failed is logged as an error of the logger "holdfast", each reason once in
    ten seconds. It blocks for `configure`'s timeout at most, 1 second; in an
    async view run it in a thread.

    Each thread keeps one connection, and uses it again within 0.2 s of its
    last answer if it is still open and this process made it (so a process may
    fork at any time). An event is never sent twice, with one exception that
    cannot publish it twice: a kept connection turned out to be closed before
    the last byte of the request could be handed to the system, and no byte of
    an answer had come. Then it is sent once more, on a new connection. If the
    whole request was handed over and the connection then ends or stays silent,
    it is not sent again: the result is 0, `uncertain`.
    """
    return publish_with_id(channel, data, event, raise_errors=raise_errors)[0]


def publish_with_id(channel, data, event=None, *, raise_errors=False):
    """As `publish`, giving (1, id) with the id that the event has got, or
    (0, NO_EVENT_ID)."""
    return attempt(channel, raise_errors, lambda: [(data, event, None)])


def attempt(channel, raise_errors, events):
    """Publish what events() gives, (data, event, retry) each, in order, up to
    the first that is not accepted. (1, id of the last), or (0, NO_EVENT_ID).
    No exception leaves it but PublishError with raise_errors, and what is no
    Exception."""
    try:
        event_id = NO_EVENT_ID
        for data, event, retry in events():
            event_id = _id_of(_post(_encode(channel, data, event, retry)))
        return 1, event_id
    except PublishError as error:
        if raise_errors:
            raise
        _log.failed(channel, error)
    except Exception as error:  # a view must not fail because a publish did
        failure = PublishError("internal", "%s: %s" % (type(error).__name__, error))
        if raise_errors:
            raise failure from error
        _log.failed(channel, failure)
    return 0, NO_EVENT_ID


def _encode(channel, data, event, retry):
    """The body of POST /publish in its native shape."""
    if isinstance(channel, (list, tuple)):
        names = list(channel)
    else:
        names = [channel]
    if not all(isinstance(name, str) for name in names):
        raise PublishError("bad_request", "channel is neither a str nor a list of them")
    if event is not None and not isinstance(event, str):
        raise PublishError("bad_request", "event is a %s; it is a str or None" % type(event).__name__)
    fields = [("channel", _json(names[0] if isinstance(channel, str) else names, "channel"))]
    if isinstance(data, (bytes, bytearray, memoryview)):
        raw = bytes(data)
        size = len(raw)
        fields.append(("base64", b'"' + base64.b64encode(raw) + b'"'))
    else:
        value = _json(data, "data")
        size = len(data.encode("utf-8")) if isinstance(data, str) else len(value)
        fields.append(("data", value))
    if size > MAX_FRAME:
        text = "data has %d bytes; at most %d are published; publish a reference and let clients fetch the rest"
        raise PublishError("body_too_large", text % (size, MAX_FRAME))
    if event:
        fields.append(("event", _json(event, "event")))
    if retry is not None:
        fields.append(("retry", _json(retry, "retry")))
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), value) for name, value in fields) + b"}"


def _json(value, name):
    try:
        # Not in ASCII: an escape is up to three times as long, and what is
        # allowed to be sent would depend on the language it is in.
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except Exception as error:  # of a lazy object's own code too
        raise PublishError("bad_request", "%s cannot be written as JSON: %s" % (name, error)) from error


class _Kept(threading.local):
    """A thread's connection between two publishes, None during one."""

    connection = None


_kept = _Kept()


def _post(body):
    """The Answer to the body. PublishError if there is none."""
    address, key, timeout = _settings.current()
    request = _head(address, key, len(body)) + body
    deadline = time.monotonic() + timeout
    connection = _take(address)
    was_kept = connection is not None
    try:
        if not was_kept:
            connection = Connection(address, deadline)
        try:
            answer = connection.exchange(request, deadline)
        except Unsent:
            if not was_kept:
                raise
            connection.close()
            connection = Connection(address, deadline)
            answer = connection.exchange(request, deadline)
        if answer.keep:
            _keep(connection)
            connection = None
        return answer
    finally:
        if connection is not None:
            connection.close()


def _take(address):
    """The thread's connection if it may be used, else None.

    It is taken out: an exchange that is broken off (a signal handler that
    raises, as a worker's timeout does) must not leave its answer behind for the
    next publish, and one that a signal handler begins meanwhile must not find it.
    """
    connection, _kept.connection = _kept.connection, None
    if connection is not None and not connection.usable(address):
        connection.close()
        return None
    return connection


def _keep(connection):
    other, _kept.connection = _kept.connection, connection
    if other is not None:  # a signal handler's publish, meanwhile
        other.close()


def _head(address, key, length):
    lines = [
        "POST /publish HTTP/1.1",
        "Host: " + address.host,
        "Content-Type: application/json",
        "Content-Length: %d" % length,
    ]
    if key:
        lines.append("Authorization: Bearer " + key)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _id_of(answer):
    """The event's id, if the answer is Holdfast's and accepts it."""
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        said = {}
    if answer.status == 200:
        event_id = said.get("id")
        if type(event_id) is int and event_id >= 0:  # True is an int as well
            return event_id
    reason = answer.headers.get("Holdfast-Reason") or said.get("reason")
    if not isinstance(reason, str) or 200 <= answer.status < 300:
        # Another server on this port, which may answer 200 to anything; or a
        # proxy that gave up on Holdfast (504).
        text = "the answer is not Holdfast's; is this its publish.listen?"
        uncertain = not 300 <= answer.status < 500
        raise PublishError("bad_answer", text, answer.status, uncertain)
    text = str(said.get("detail") or "Holdfast did not accept the event")
    raise PublishError(reason, text, answer.status, uncertain=answer.status == 500)
