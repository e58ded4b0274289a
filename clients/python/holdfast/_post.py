"""One POST to Holdfast, on the thread's own connection, and what it answered."""

import json
import threading
import time

from . import _log, _settings
from ._connection import Connection
from ._error import PublishError, Unsent


class _Kept(threading.local):
    """A thread's connection between two requests, None during one."""

    connection = None


_kept = _Kept()


def attempt(verb, what, raise_errors, call):
    """What call() gives. None, and a line in the log, if it fails: a view must
    not fail because a publish did. No exception leaves it but PublishError with
    raise_errors, and what is no Exception."""
    try:
        return call()
    except PublishError as error:
        if raise_errors:
            raise
        failure = error
    except Exception as error:
        failure = PublishError("internal", "%s: %s" % (type(error).__name__, error))
        if raise_errors:
            raise failure from error
    _log.failed(verb, what, failure)
    return None


def post(path, body):
    """The Answer to a POST of a body of JSON. PublishError if there is none."""
    address, key, timeout, context = _settings.current()
    request = _head(path, address, key, len(body)) + body
    deadline = time.monotonic() + timeout
    connection = _take(address, context)
    was_kept = connection is not None
    try:
        if not was_kept:
            connection = Connection(address, context, deadline)
        try:
            answer = connection.exchange(request, deadline)
        except Unsent:
            if not was_kept:
                raise
            connection.close()
            connection = Connection(address, context, deadline)
            answer = connection.exchange(request, deadline)
        if answer.keep:
            _keep(connection)
            connection = None
        return answer
    finally:
        if connection is not None:
            connection.close()


def _take(address, context):
    """The thread's connection if it may be used, else None.

    It is taken out: an exchange that is broken off (a signal handler that
    raises, as a worker's timeout does) must not leave its answer behind for the
    next request, and one that a signal handler begins meanwhile must not find it.
    """
    connection, _kept.connection = _kept.connection, None
    if connection is not None and not connection.usable(address, context):
        connection.close()
        return None
    return connection


def _keep(connection):
    other, _kept.connection = _kept.connection, connection
    if other is not None:  # a signal handler's request, meanwhile
        other.close()


def _head(path, address, key, length):
    lines = [
        "POST %s HTTP/1.1" % path,
        "Host: " + address.host,
        "Content-Type: application/json",
        "Content-Length: %d" % length,
    ]
    if key:
        lines.append("Authorization: Bearer " + key)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def object_of(fields):
    """A JSON object of (name, value as `encoded` gives it) pairs."""
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), value) for name, value in fields) + b"}"


def encoded(value, name):
    """The value as JSON. PublishError `bad_request`, with the name, if it has none."""
    try:
        # Not in ASCII: an escape is up to three times as long, and what is
        # allowed to be sent would depend on the language it is in.
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except Exception as error:  # of a lazy object's own code too
        raise PublishError("bad_request", "%s cannot be written as JSON: %s" % (name, error)) from error


def number_in(answer, name):
    """The whole number of that name in the answer, if the answer is
    Holdfast's and accepts the request. PublishError otherwise."""
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        said = {}
    if answer.status == 200:
        number = said.get(name)
        if type(number) is int and number >= 0:  # True is an int as well
            return number
    reason = answer.headers.get("Holdfast-Reason") or said.get("reason")
    if not isinstance(reason, str) or 200 <= answer.status < 300:
        # Another server on this port, which may answer 200 to anything; or a
        # proxy that gave up on Holdfast (504).
        text = "the answer is not Holdfast's; is this its publish.listen?"
        uncertain = not 300 <= answer.status < 500
        raise PublishError("bad_answer", text, answer.status, uncertain)
    text = str(said.get("detail") or "Holdfast did not accept it")
    raise PublishError(reason, text, answer.status, uncertain=_is_uncertain(answer.status, reason, text))


def _is_uncertain(status, reason, detail):
    """Whether a refusal leaves open if it was done all the same: an error
    inside, or a bus that went away while it had the event. Holdfast says which
    of two it is where a bus is down, in words alone."""
    return status == 500 or reason == "bus_down" and not detail.startswith("nothing was published")
