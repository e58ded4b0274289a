"""Publish events through Holdfast and hand clients over to it.

    import holdfast

    holdfast.publish("news", "hello")                        # 1: accepted, 0: not
    holdfast.publish(["news", "user-42"], {"n": 1}, event="count")

    def events(request):                                     # Django or Flask
        return holdfast.hold(HttpResponse(), "news", mode="stream")

    holdfast.position(request)                               # for EventSource("/events?lastEventId=...")

    def message(request):                                    # what the clients of held WebSockets say
        said = holdfast.message(request)
        return holdfast.reply(HttpResponse(), said.payload)  # and subscribe, unsubscribe, close

    holdfast.end("user-42", code=4001, reason="signed out")  # how many holds ended, None: not known
    cursor.execute(*holdfast.notify_sql("news", "hello"))    # with the transaction, not before
    holdfast.grant.stream_url("/live", "news", session=request.COOKIES["sessionid"])

A publish is one POST to Holdfast's publish address, `publish.listen` of its
configuration. The address is HOLDFAST_PUBLISH_URL (default
http://127.0.0.1:5561; https://, or unix:/PATH), the key, where one is asked for,
HOLDFAST_PUBLISH_KEY, the files of TLS HOLDFAST_PUBLISH_CA, _CERT and _CERT_KEY;
`configure` sets all of them from code. It takes a second at most and raises
nothing: see `publish` for what 1 and 0 promise.

Apps written for m0serve change their import line: `publish_frame`,
`sse_event`, `next_event_id`, `bus_write_fds`, `child_fds`, `NO_EVENT_ID` and
`MAX_FRAME` are here under the names that they know, and each says how it
works without that server's descriptors.

What it will not do: queue events, send one twice, speak TLS without verifying,
use an HTTP proxy, or read events. It needs nothing besides Python's standard
library.
"""

from . import grant
from ._end import end
from ._error import PublishError
from ._frame import MAX_FRAME, NO_EVENT_ID, sse_event
from ._hold import hold, position
from ._m0serve import bus_write_fds, child_fds, next_event_id, publish_frame
from ._message import Message, close, message, reply, subscribe, unsubscribe
from ._publish import publish, publish_with_id
from ._settings import configure
from ._sql import notify_sql

__all__ = [
    "MAX_FRAME",
    "Message",
    "NO_EVENT_ID",
    "PublishError",
    "bus_write_fds",
    "child_fds",
    "close",
    "configure",
    "end",
    "grant",
    "hold",
    "message",
    "next_event_id",
    "notify_sql",
    "position",
    "publish",
    "publish_frame",
    "publish_with_id",
    "reply",
    "sse_event",
    "subscribe",
    "unsubscribe",
]
