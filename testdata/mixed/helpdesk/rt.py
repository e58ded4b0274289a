"""Two event streams, a mirror and a socket, as plain ASGI callables."""

import asyncio
import os
from urllib.parse import parse_qs

from django.conf import settings

import ledger

PROTOCOLS = ["desk.v2", "desk.v1"]  # the ones we speak, the best first


async def recorded(view, scope, receive, send):
    """A line in the ledger when the view starts and one when it has ended.

    What the view returns, if anything, is a third: how its client left.
    """
    query = scope["query_string"].decode("latin-1")
    path = scope["path"] + ("?" + query if query else "")
    request_id = dict(scope["headers"]).get(b"x-ledger-id", b"").decode("latin-1")
    entry = ledger.Entry(request_id, scope.get("method", "GET"), path)
    left = None
    try:
        left = await view(scope, receive, send)
    finally:
        entry.end()
    if left:
        ledger.Entry(request_id, "LEFT", left).end()


def asked(scope, name, default=""):
    return parse_qs(scope["query_string"].decode("latin-1")).get(name, [default])[0]


async def ticks(scope, receive, send):
    """An event every ?ms=."""
    pause = int(asked(scope, "ms", "1000")) / 1000

    async def events():
        number = 0
        while True:
            number += 1
            yield f"id: {number}\nevent: tick\ndata: {number}\n\n"
            await asyncio.sleep(pause)

    return await stream(events(), receive, send)


async def gated(scope, receive, send):
    """Event n, once the file that ?gate= names has n bytes."""
    gate = os.path.join(settings.JOBS_DIR, os.path.basename(asked(scope, "gate", "gate")))

    async def events():
        number = 0
        while True:
            number += 1
            while not (os.path.exists(gate) and os.path.getsize(gate) >= number):
                await asyncio.sleep(0.005)
            yield f"id: {number}\nevent: gated\ndata: {number}\n\n"

    return await stream(events(), receive, send)


async def stream(events, receive, send):
    """Sends events until the client leaves."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"), (b"m0-note", b"never seen")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    sending = asyncio.ensure_future(send_all(events, send))
    left = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait([sending, left], return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        left.cancel()
    return "/left/disconnect"


async def send_all(events, send):
    async for event in events:
        await send({"type": "http.response.body", "body": event.encode(), "more_body": True})


async def disconnected(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


async def mirror(scope, receive, send):
    """Sends each piece of the body back as it comes, and a line with the count at the end."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    count, more = 0, True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            return "/left/disconnect"
        piece, more = event.get("body", b""), event.get("more_body", False)
        count += len(piece)
        if piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"\n%d bytes\n" % count})


async def echo(scope, receive, send):
    """Sends back what comes. The text "bye" is answered with close code 4000.

    With ?hello= that text is sent with the accept itself.
    """
    await receive()  # websocket.connect
    offered = scope.get("subprotocols") or []
    spoken = next((name for name in PROTOCOLS if name in offered), None)
    await send({"type": "websocket.accept", "subprotocol": spoken})
    hello = asked(scope, "hello")
    if hello:
        await send({"type": "websocket.send", "text": hello})
    while (event := await receive())["type"] == "websocket.receive":
        if event.get("text") == "bye":
            await send({"type": "websocket.close", "code": 4000})
            return "/left/bye"
        # "Exactly one of the two": the other key may be there with None.
        if event.get("text") is not None:
            await send({"type": "websocket.send", "text": event["text"]})
        else:
            await send({"type": "websocket.send", "bytes": event["bytes"]})
    return f"/left/{event.get('code', 'without-a-code')}"


async def refuse(receive, send):
    await receive()  # websocket.connect
    await send({"type": "websocket.close", "code": 4404})
