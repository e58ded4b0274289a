"""Event streams that Holdfast holds, as a Django project in one file answers
with them.

The views of flask_app.py under the same paths. Holdfast's Python client and
ledger.py are found through PYTHONPATH.
"""

import os
import time

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
    USE_TZ=True,
    USE_I18N=False,
)


class LedgerMiddleware:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        entry = ledger.Entry(request.headers.get("X-Ledger-Id"), request.method, request.get_full_path())
        try:
            return self.get_response(request)
        finally:
            entry.end()


def wait_for(gate):
    """Waits until the file is in the folder that GATES names."""
    until = time.monotonic() + 600
    while not os.path.exists(os.path.join(os.environ["GATES"], gate)) and time.monotonic() < until:
        time.sleep(0.01)


def events(request):
    """Hands its client over. ?publish= is published by the view itself, ?gate=
    is a file that it waits for, ?body= the stream's first bytes."""
    channels = request.GET.getlist("channel") or ["news"]
    if "publish" in request.GET:
        holdfast.publish(channels[0], request.GET["publish"], raise_errors=True)
    if "gate" in request.GET:
        wait_for(request.GET["gate"])
    response = HttpResponse(request.GET.get("body", ""), content_type="text/plain")
    response.set_cookie("seen", "yes")
    response["X-View"] = "events"
    response.status_code = int(request.GET.get("status", "200"))
    return holdfast.hold(response, *channels)


def page(request):
    """What a browser opens first: it names the position from which to go on."""
    at = holdfast.position(request)
    response = HttpResponse('<script>new EventSource("/events?lastEventId=%s")</script>\n' % at)
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


def upload(request):
    return JsonResponse({"view": "upload", "body_bytes": len(request.body)})


urlpatterns = [path(view.__name__, view) for view in (events, page, fast, slow, hang, upload)]
app = get_wsgi_application()
