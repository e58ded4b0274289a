"""What a view says to hand its client over, and what Holdfast says to a view."""

import re

from ._channel import listed
from ._framework import field_of, fields_of, without

MODES = ("stream", "websocket", "response")

# Holdfast takes a time outside these bounds for the nearer bound.
TIMEOUT_LEAST = 1
TIMEOUT_MOST = 24 * 60 * 60

_ID = re.compile("[0-9]{1,20}")


def hold(response, *channels, mode="stream", timeout=None, envelope=False):
    """Mark a Django or Flask response so that Holdfast keeps its client, and
    return it. The view is then finished and its worker free.

    response  answered with status 200; with another it is served as it is
    channels  the names of the channels to join, 1 to 64
    mode      "stream": an event stream, the body is its first bytes.
              "websocket": approve the upgrade, the body is not sent.
              "response": a long-poll, the body is the answer if no event comes
    timeout   seconds that a long-poll waits, 1 to 86400; None: Holdfast's 55.
              Only with mode="response"
    envelope  True: a socket gets events as JSON with their ids, and can resume.
              Only with mode="websocket"

    ValueError for no channel or more than 64, a name that is not a str of 1 to
    255 bytes of UTF-8 without control bytes, an unknown mode, and what has no
    effect with the mode; the response is untouched then.

    Reached without Holdfast in front, the response is an ordinary one with M0-*
    headers.
    """
    fields = {
        "M0-Hold": mode,
        "M0-Channel": listed(channels),
        "M0-Timeout": None,
        "M0-Envelope": None,
    }
    if mode not in MODES:
        raise ValueError("mode is %r; it is one of %s" % (mode, ", ".join(MODES)))
    if timeout is not None:
        if mode != "response":
            raise ValueError("timeout has no effect with mode=%r; it is how long a long-poll waits" % mode)
        number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if not number or not TIMEOUT_LEAST <= timeout <= TIMEOUT_MOST:
            raise ValueError("timeout is %r; it is %d to %d seconds" % (timeout, TIMEOUT_LEAST, TIMEOUT_MOST))
        fields["M0-Timeout"] = str(timeout)
    if envelope:
        if mode != "websocket":
            raise ValueError("envelope has no effect with mode=%r; streams have ids anyway" % mode)
        fields["M0-Envelope"] = "json"
    headers = fields_of(response)
    for name, value in fields.items():
        if value is not None:
            headers[name] = value
        else:
            without(headers, name)  # of an earlier hold() on the same response
    return response


def position(request):
    """Where the event stream stood when Holdfast sent this Django or Flask
    request to the app, as a str of digits, for a page that renders

        new EventSource("/events?lastEventId={{ position }}")

    and must miss nothing between its rendering and the stream's opening. Such
    a page must not be cached. None without Holdfast in front.

    Only digits ever come out, so that it may stand in a page even where the
    app can be reached without Holdfast, and a client can write the field.
    """
    value = field_of(request, "M0-Position")
    return value if value and _ID.fullmatch(value) else None
