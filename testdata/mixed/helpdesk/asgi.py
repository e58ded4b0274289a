"""The site for an ASGI server, with what WSGI cannot do beside it."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helpdesk.settings")

django = get_asgi_application()

from helpdesk import rt  # noqa: E402  its ledger is found only once the settings are loaded

mounted = {
    ("http", "/rt/ticks"): rt.ticks,
    ("http", "/rt/gated"): rt.gated,
    ("http", "/rt/mirror"): rt.mirror,
    ("websocket", "/rt/echo"): rt.echo,
}


async def application(scope, receive, send):
    view = mounted.get((scope["type"], scope.get("path")))
    if view:
        await rt.recorded(view, scope, receive, send)
    elif scope["type"] == "websocket":
        await rt.refuse(receive, send)
    else:
        await django(scope, receive, send)
