"""The view that answers what a held WebSocket's client says: reading the
message, and what the answer has Holdfast do."""

from typing import NamedTuple, Tuple, Union

from ._channel import MAX_CHANNELS, listed, names_in
from ._frame import MAX_FRAME, text_of
from ._framework import body_of, field_of, fields_of, give_body

_TEXT, _BINARY = "1", "2"  # RFC 6455 §5.2

# What a close frame has room for behind its code (RFC 6455 §5.5).
MAX_REASON_BYTES = 123


class Message(NamedTuple):
    """One message of a held WebSocket's client.

    channels    the names of the channels that the socket is in
    connection  the socket's name, for `end`
    opcode      1 for a text, 2 for a binary message
    payload     what the client sent: a str of a text, bytes of a binary message
    """

    channels: Tuple[str, ...]
    connection: str
    opcode: int
    payload: Union[str, bytes]


def message(request):
    """The Message that Holdfast has POSTed with this Django or Flask request.

    ValueError for any other request: without M0-Opcode, or a text that is not
    UTF-8. The network cannot reach the path past Holdfast; where it can reach the
    app itself, nothing in a Message is to be believed. Of a channel's name, what
    is not UTF-8 becomes U+FFFD.
    """
    opcode = field_of(request, "M0-Opcode")
    if opcode not in (_TEXT, _BINARY):
        text = "M0-Opcode is %.40r, so this is no message of a socket; Holdfast POSTs those to holds.message_path"
        raise ValueError(text % (opcode,))
    payload = body_of(request)
    return Message(
        channels=names_in(field_of(request, "M0-Channel") or ""),
        connection=field_of(request, "M0-Connection") or "",
        opcode=int(opcode),
        payload=payload.decode("utf-8") if opcode == _TEXT else payload,
    )


def reply(response, data):
    """Send data to the socket whose message this Django or Flask response
    answers, to it alone, and return the response.

    data  a str as a text message; bytes, bytearray and memoryview as a binary
          one; anything else as a text of JSON. It becomes the response's body, at
          most MAX_FRAME bytes

    ValueError for more, for what has no UTF-8 or JSON, and for a response of
    Django's that streams. As all that an answer says, it counts only below status
    300.
    """
    if isinstance(data, (bytes, bytearray, memoryview)):
        kind, body = "binary", bytes(data)
    else:
        kind, body = "text", text_of(data).encode("utf-8")
    if len(body) > MAX_FRAME:
        raise ValueError("the reply has %d bytes; a socket gets at most %d" % (len(body), MAX_FRAME))
    give_body(response, body)
    fields_of(response)["M0-Reply"] = kind
    return response


def subscribe(response, *channels):
    """Have the socket join channels, as of when its message was sent to the app,
    and return the response. Calls add up.

    ValueError for no channel, more than 64 in all, and a name that is not a str of
    1 to 255 bytes of UTF-8 without control bytes. A socket that would then be in
    more than 64 joins none of them, which Holdfast logs.
    """
    return _listed_too(response, "M0-Subscribe", channels)


def unsubscribe(response, *channels):
    """Have the socket leave channels, and return the response. Calls add up. A
    channel that is to be joined too stays. ValueError as of `subscribe`."""
    return _listed_too(response, "M0-Unsubscribe", channels)


def _listed_too(response, name, channels):
    value = listed(channels)
    fields = fields_of(response)
    before = fields.get(name)
    if before:
        value = before + ", " + value
        if value.count(",") >= MAX_CHANNELS:
            raise ValueError("%s would have %d channels; it has at most %d" % (name, value.count(",") + 1, MAX_CHANNELS))
    fields[name] = value
    return response


def close(response, code=1000, reason=""):
    """Close the socket, after the reply if there is one, and return the response.

    code    1000 to 1003, 1007 to 1014, 3000 to 4999
    reason  a str of at most 123 bytes of UTF-8 without control bytes; white space
            around it is taken off

    ValueError for another code or reason.
    """
    if not isinstance(code, int) or not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        raise ValueError("code is %r; it is 1000 to 1003, 1007 to 1014 or 3000 to 4999" % (code,))
    value = _reason(reason)
    fields_of(response)["M0-Close"] = "%d %s" % (code, value) if value else "%d" % code
    return response


def _reason(reason):
    """The reason as a header field has it: its bytes as Latin-1 (PEP 3333)."""
    if not isinstance(reason, str):
        raise ValueError("reason is a %s; it is a str" % type(reason).__name__)
    if any(c < " " or c == "\x7f" for c in reason):
        raise ValueError("reason %.80r has a control byte; take it out" % reason)
    reason = reason.strip()
    raw = reason.encode("utf-8")
    if len(raw) > MAX_REASON_BYTES:
        raise ValueError("reason %.40r has %d bytes; a close frame has room for %d" % (reason, len(raw), MAX_REASON_BYTES))
    value = raw.decode("latin-1")
    if value != value.rstrip() and max(reason) <= "\xff":
        # The last byte of an à or Å is white space in Latin-1, which a server may
        # take off. Latin-1 itself ends in none, and is no UTF-8: Holdfast reads it
        # as what it is.
        value = reason
    return value
