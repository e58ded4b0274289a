"""Publishing an event."""

import base64

from ._error import PublishError
from ._frame import MAX_FRAME, NO_EVENT_ID
from ._post import attempt, encoded, number_in, object_of, post


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
    return publish_each(channel, raise_errors, lambda: [(data, event, None)])


def publish_each(channel, raise_errors, events):
    """Publish what events() gives, (data, event, retry) each, in order, up to
    the first that is not accepted. (1, id of the last), or (0, NO_EVENT_ID).
    It raises as `attempt` does."""

    def call():
        event_id = NO_EVENT_ID
        for data, event, retry in events():
            event_id = number_in(post("/publish", encode(channel, data, event, retry)), "id")
        return 1, event_id

    return attempt("publish to", channel, raise_errors, call) or (0, NO_EVENT_ID)


def encode(channel, data, event, retry):
    """The body of POST /publish in its native shape. PublishError for what
    cannot be sent at all; what can be is Holdfast's to judge."""
    if isinstance(channel, (list, tuple)):
        names = list(channel)
    else:
        names = [channel]
    if not all(isinstance(name, str) for name in names):
        raise PublishError("bad_request", "channel is neither a str nor a list of them")
    if event is not None and not isinstance(event, str):
        raise PublishError("bad_request", "event is a %s; it is a str or None" % type(event).__name__)
    fields = [("channel", encoded(names[0] if isinstance(channel, str) else names, "channel"))]
    if isinstance(data, (bytes, bytearray, memoryview)):
        raw = bytes(data)
        size = len(raw)
        fields.append(("base64", b'"' + base64.b64encode(raw) + b'"'))
    else:
        value = encoded(data, "data")
        size = len(data.encode("utf-8")) if isinstance(data, str) else len(value)
        fields.append(("data", value))
    if size > MAX_FRAME:
        text = "data has %d bytes; at most %d are published; publish a reference and let clients fetch the rest"
        raise PublishError("body_too_large", text % (size, MAX_FRAME))
    if event:
        fields.append(("event", encoded(event, "event")))
    if retry is not None:
        fields.append(("retry", encoded(retry, "retry")))
    return object_of(fields)
