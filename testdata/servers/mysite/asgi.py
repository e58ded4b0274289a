"""The same site for an ASGI server, and two things of its own below /rt/: an
event stream and a socket, both until their clients leave."""

import asyncio
import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")

django = get_asgi_application()

import gate  # noqa: E402


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await socket(receive, send)
    elif scope["type"] == "http" and scope["path"] == "/rt/events":
        await events(scope, receive, send)
    elif scope["type"] in ("http", "websocket"):
        await django(scope, receive, send)


async def socket(receive, send):
    """Sends back what it receives."""
    await receive()
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": event["text"]})


async def events(scope, receive, send):
    """One event, and then nothing: waits at the gate until its client leaves."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})
    waiting = asyncio.ensure_future(gate.wait_async(scope["path"]))
    while (await receive())["type"] != "http.disconnect":
        pass
    waiting.cancel()
