"""Publishing inside a transaction of the app's own database."""

import json
import re
from decimal import Decimal

from ._channel import MAX_CHANNELS, check
from ._error import PublishError
from ._frame import MAX_FRAME
from ._post import encoded
from ._publish import encode

_SCHEMA = re.compile("[a-z][a-z0-9_]{0,31}")

# NUL in a text of JSON: an escape, behind an even number of backslashes.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

# The longest that a browser's timer can wait, in milliseconds.
MOST_RETRY = 2**31 - 1


def notify_sql(channel, data, event=None, retry=None, schema="holdfast"):
    """(sql, params) that publish one event in the transaction in which they are
    executed: when that commits, and never if it is rolled back.

        with transaction.atomic():
            order.save()
            cursor.execute(*holdfast.notify_sql("orders", {"id": order.pk}))

    The database is the one that the Holdfasts share, `bus: postgres://...`, and
    the role may EXECUTE what `holdfast bus init` says. The params are marked with
    %s, as psycopg and Django have it.

    channel, data, event  as of `publish`
    retry                 milliseconds that an EventSource waits before it comes
                          back, 0 to 2147483647; None: nothing is said of it
    schema                the log's name, `log=` of the bus's URL

    ValueError for all that Holdfast would refuse, since it has nobody to tell
    then: a name, an event, a retry or a schema that is none, more than 64
    channels, data over MAX_FRAME bytes or without UTF-8 or JSON. And for a NUL in
    text or JSON, which PostgreSQL cannot keep: publish it as bytes.

    JSON comes as PostgreSQL writes it: keys in its order, numbers without
    exponent.
    """
    if not isinstance(schema, str) or not _SCHEMA.fullmatch(schema):
        raise ValueError("schema is %.80r; it is a small letter, then small letters, digits and _, at most 32 in all" % (schema,))
    _check_channels([channel] if isinstance(channel, str) else channel)
    _check_event(event)
    if retry is not None and (type(retry) is not int or not 0 <= retry <= MOST_RETRY):
        raise ValueError("retry is %r; it is whole milliseconds, 0 to %d" % (retry, MOST_RETRY))
    try:
        body = encode(channel, data, event, retry).decode("utf-8")
    except PublishError as error:
        raise ValueError(error.detail) from error
    if _NUL.search(body):
        raise ValueError("data has a NUL, which PostgreSQL keeps in no text; publish it as bytes")
    longer = _written_out(body)
    if longer and len(encoded(data, "data")) + longer > MAX_FRAME:
        text = "data has more than %d bytes as PostgreSQL writes its numbers, without exponent; publish a reference"
        raise ValueError(text % MAX_FRAME)
    if isinstance(channel, str) and isinstance(data, str) and not event and retry is None:
        return "SELECT %s.holdfast_publish(%%s, %%s)" % schema, (channel, data)
    return "SELECT %s.holdfast_publish(%%s::jsonb)" % schema, (body,)


def _check_channels(names):
    if not isinstance(names, (list, tuple)):
        raise ValueError("channel is %.80r; it is a str or a list of them" % (names,))
    if not 1 <= len(names) <= MAX_CHANNELS:
        raise ValueError("%d channels; an event has 1 to %d" % (len(names), MAX_CHANNELS))
    for name in names:
        check(name)


def _check_event(event):
    if event is None:
        return
    if not isinstance(event, str):
        raise ValueError("event is a %s; it is a str or None" % type(event).__name__)
    if re.search("[\r\n\0]", event) or len(event.encode("utf-8")) > MAX_FRAME:
        raise ValueError("event %.80r is no name: it is one line without NUL, of at most %d bytes" % (event, MAX_FRAME))


def _written_out(text):
    """How many bytes longer the numbers of a text of JSON are without exponent."""
    longer = 0

    def number(literal):
        nonlocal longer
        if "e" in literal:
            longer += len(format(Decimal(literal), "f")) - len(literal)

    if "e" in text:
        json.loads(text, parse_float=number)
    return longer
