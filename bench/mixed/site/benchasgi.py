"""The help desk for an ASGI server, with an event stream that asks the database
first, as somebody would write it who knows both."""

import asyncio

from asgiref.sync import sync_to_async
from helpdesk.asgi import application as helpdesk

from benchurls import query  # after that one, which has loaded the settings
from helpdesk import rt


async def beats():
    yield ": open\n\n"
    while True:
        await asyncio.sleep(15)
        yield ": heartbeat\n\n"


async def application(scope, receive, send):
    if scope["type"] == "http" and scope["path"] == "/rt/bench":
        await sync_to_async(query)()
        await rt.stream(beats(), receive, send)
    else:
        await helpdesk(scope, receive, send)
