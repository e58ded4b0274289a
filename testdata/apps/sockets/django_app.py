"""Sockets and long polls that Holdfast holds, as a Django project in one file
answers with them.

The views of flask_app.py, which says what messages are, under the same paths.
Holdfast's Python client and ledger.py are found through PYTHONPATH.
"""

import json
import os
import time
from urllib.parse import parse_qsl

import holdfast
import ledger
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse
from django.urls import path

settings.configure(
    SECRET_KEY="only for the tests",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[__name__ + ".LedgerMiddleware", "django.middleware.common.CommonMiddleware"],
    DATA_UPLOAD_MAX_MEMORY_SIZE=None,
    USE_TZ=True,
    USE_I18N=False,
)


class LedgerMiddleware:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        connection = request.headers.get("M0-Connection")
        if connection is None:
            entry = ledger.Entry(request.headers.get("X-Ledger-Id"), request.method, request.get_full_path())
        else:
            number, _, query = request.body.decode("latin-1").partition("?")
            request.asked = dict(parse_qsl(query))
            entry = ledger.Entry(connection, "MESSAGE", "/message/" + number)
        try:
            return self.get_response(request)
        finally:
            entry.end()


def wait_for(gate):
    """Waits until the file is in the folder that GATES names."""
    until = time.monotonic() + 600
    while not os.path.exists(os.path.join(os.environ["GATES"], gate)) and time.monotonic() < until:
        time.sleep(0.01)


def hold(request, mode, text, **more):
    """Hands the client over. ?publish= is published by the view itself, ?gate= is
    a file that it waits for."""
    channels = request.GET.getlist("channel") or ["news"]
    if "publish" in request.GET:
        holdfast.publish(channels[0], request.GET["publish"], raise_errors=True)
    if "gate" in request.GET:
        wait_for(request.GET["gate"])
    response = HttpResponse(text, content_type="text/plain")
    response.set_cookie("seen", "yes")
    response["X-View"] = mode
    response.status_code = int(request.GET.get("status", "200"))
    return holdfast.hold(response, *channels, mode=mode, **more)


def socket(request, lane=""):
    response = hold(request, "websocket", "not for sockets\n", envelope="envelope" in request.GET)
    if "protocol" in request.GET:
        response["Sec-WebSocket-Protocol"] = request.GET["protocol"]
    return response


def message(request):
    asked = request.asked
    time.sleep(int(asked.get("ms", "0")) / 1000)
    if "gate" in asked:
        wait_for(asked["gate"])
    if "publish" in asked:
        holdfast.publish(asked["channel"], asked["publish"], raise_errors=True)
    response = HttpResponse(asked.get("answer", ""), content_type="text/plain")
    if "echo" in asked:
        response.content = request.body
    if "environ" in asked:
        response.content = json.dumps({k: v for k, v in request.META.items() if isinstance(v, str)})
    for name in ("reply", "subscribe", "unsubscribe", "close"):
        if name in asked:
            response["M0-" + name.title()] = asked[name]
    response.status_code = int(asked.get("status", "200"))
    return response


def poll(request):
    """?body= is the answer where no event comes within ?timeout= seconds."""
    timeout = float(request.GET["timeout"]) if "timeout" in request.GET else None
    response = hold(request, "response", request.GET.get("body", "nothing\n"), timeout=timeout)
    response["ETag"] = '"of the view"'
    return response


def events(request):
    return hold(request, "stream", "")


def page(request):
    """The position from which a client goes on that has this page."""
    response = HttpResponse(holdfast.position(request), content_type="text/plain")
    response["Cache-Control"] = "no-store"
    return response


def fast(request):
    return JsonResponse({"view": "fast"})


def slow(request):
    ms = int(request.GET.get("ms", "1500"))
    time.sleep(ms / 1000)
    return JsonResponse({"view": "slow", "ms": ms})


def hang(request):
    wait_for("release")
    return JsonResponse({"view": "hang"})


urlpatterns = [path(view.__name__, view) for view in (poll, events, page, fast, slow, hang)] + [
    path("ws", socket),
    path("<lane>/ws", socket),
    path("approve", socket),
    path("ws/message", message),
    path("chat/message", message),
]
app = get_wsgi_application()
