"""The same site for an ASGI server, with what WSGI cannot do: /events that ends
when its client leaves, and /ws, a socket that sends back what it receives."""

import asyncio
import os
from urllib.parse import parse_qs

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")

django = get_asgi_application()

import ledger  # noqa: E402  found only once the settings are loaded


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await recorded(socket, scope, receive, send)
    elif scope["type"] == "http" and scope["path"] == "/events":
        await recorded(events, scope, receive, send)
    else:
        await django(scope, receive, send)


async def recorded(view, scope, receive, send):
    query = scope["query_string"].decode("latin-1")
    path = scope["path"] + ("?" + query if query else "")
    request_id = dict(scope["headers"]).get(b"x-ledger-id", b"").decode("latin-1")
    entry = ledger.Entry(request_id, scope.get("method", "GET"), path)
    try:
        await view(scope, receive, send)
    finally:
        entry.end()


async def socket(scope, receive, send):
    """Echoes; the text "bye" makes the app close with code 4000."""
    await receive()  # websocket.connect
    if scope["path"] != "/ws":
        await send({"type": "websocket.close", "code": 4404})
        return
    offered = scope.get("subprotocols") or [None]
    await send({"type": "websocket.accept", "subprotocol": offered[0]})
    while (event := await receive())["type"] == "websocket.receive":
        if event.get("text") == "bye":
            await send({"type": "websocket.close", "code": 4000})
            return
        # "Exactly one of the two": the other key may be there with None.
        if event.get("text") is not None:
            await send({"type": "websocket.send", "text": event["text"]})
        else:
            await send({"type": "websocket.send", "bytes": event["bytes"]})


async def events(scope, receive, send):
    pause = int(parse_qs(scope["query_string"].decode("latin-1")).get("ms", ["1000"])[0]) / 1000
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    left = asyncio.ensure_future(disconnected(receive))
    try:
        i = 0
        while not left.done():
            body = f"id: {i}\nevent: tick\ndata: {i}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})
            i += 1
            await asyncio.wait([left], timeout=pause)
    finally:
        left.cancel()


async def disconnected(receive):
    while (await receive())["type"] != "http.disconnect":
        pass
