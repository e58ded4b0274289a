"""Event streams as django-eventstream answers with them to a GRIP proxy, header
for header, from a Django project in one file.

GRIP_URL and HISTORY are told in grip.py and history.py. PAGE is how many events
an answer has at most, KEEP_ALIVE after how many seconds a quiet stream is sent
something, LINK_EXPIRES when the links expire (seconds since 1970; an hour from
now where it is not set). GATES is a folder of files that switch things:
links-403 has every next link answered with that status, and so on.
"""

import json
import os
import time
from collections import Counter
from urllib.parse import parse_qs, quote, unquote, urlsplit

import grip
import history
import ledger
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse
from django.urls import path

PAGE = int(os.environ.get("PAGE", "100"))
KEEP_ALIVE = int(os.environ.get("KEEP_ALIVE", "20"))

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


def gate_is_open(name):
    return os.path.exists(os.path.join(os.environ["GATES"], name))


def wait_for(gate):
    """Waits until the file is in the folder that GATES names."""
    until = time.monotonic() + 600
    while not gate_is_open(gate) and time.monotonic() < until:
        time.sleep(0.01)


def escape(text):
    """For the build-id filter, to which a percent sign means something."""
    return text.replace("%", "%%")


def encode_event(kind, data, event_id=None, escaped=False):
    data = json.dumps(data)
    if escaped:
        kind, data = escape(kind), escape(data)
    return "event: %s\n%sdata: %s\n\n" % (kind, "id: %s\n" % event_id if event_id else "", data)


def make_id(ids):
    return ",".join("%s:%s" % (quote(channel), last) for channel, last in ids.items())


def parse_id(text):
    """The number by channel of an id that make_id, or the proxy, has made."""
    return {unquote(channel): int(last) for channel, last in (part.split(":") for part in text.split(",") if part)}


class Asked:
    """Who asks for which channels, from where on."""

    def __init__(self, request):
        self.is_next = request.GET.get("link") == "next"
        claims = {}
        if "es-meta" in request.GET:
            claims = grip.decode_token(request.GET["es-meta"], settings.SECRET_KEY.encode())
        elif self.is_next:
            raise ValueError("a link without es-meta")
        # The proxy asks for the app's sake: it has the client's fields no more.
        if self.is_next and ("HTTP_COOKIE" in request.META or "HTTP_LAST_EVENT_ID" in request.META):
            raise ValueError("the client's fields are sent to a link")
        self.user = claims.get("user") or request.COOKIES.get("user", "anonymous")
        self.channels = claims.get("channels") or request.GET.getlist("channel")
        if request.GET.get("recover") == "true":
            last = {unquote(c[7:]): int(i) for c, i in grip.last_ids(request).items() if c.startswith("events-")}
        else:
            last = parse_id(request.headers.get("Last-Event-ID") or request.GET.get("lastEventId", ""))
        self.last = {channel: last for channel, last in last.items() if channel in self.channels}


def next_link(request, asked, event_id, more):
    params = request.GET.copy()
    params["link"] = "next"
    if more:
        params["lastEventId"] = event_id
        params.pop("recover", None)
    else:
        params["recover"] = "true"
        params.pop("lastEventId", None)
    expires = int(os.environ.get("LINK_EXPIRES", int(time.time()) + 3600))
    claims = {"iss": "es", "exp": expires, "channels": asked.channels, "user": asked.user}
    params["es-meta"] = grip.encode_token(claims, settings.SECRET_KEY.encode())
    return request.path + "?" + params.urlencode()


def events(request):
    """The stream of ?channel=, as often as there are channels. ?gate= is a file
    that the view waits for when it has read what there is."""
    if not grip.is_proxied(request):
        return HttpResponse("not through a proxy with the key\n", status=501)
    for status in (403, 404):
        if request.GET.get("link") == "next" and gate_is_open("links-%d" % status):
            return HttpResponse("no such link\n", status=status)
    try:
        asked = Asked(request)
    except ValueError as error:
        return HttpResponse("%s\n" % error, status=400)

    body = "" if asked.is_next else ":" + " " * 2048 + "\n\nevent: stream-open\ndata:\n\n"
    last, more = {channel: asked.last.get(channel, history.last(channel)) for channel in asked.channels}, False
    limit = max(1, PAGE // len(asked.channels))
    for channel in asked.channels:
        found = history.after(channel, last[channel], limit + 1) if channel in asked.last else []
        more = more or len(found) > limit
        for number, kind, data in found[:limit]:
            last[channel] = number
            body += encode_event(kind, data, make_id(last), escaped=True)
    if "gate" in request.GET:
        wait_for(request.GET["gate"])

    response = HttpResponse(body, content_type="text/event-stream")
    response["Cache-Control"] = "no-cache"
    names = {channel: "events-" + quote(channel) for channel in asked.channels}
    channels = [(names[c], last[c], ("build-id", "skip-users")) for c in asked.channels]
    channels.append(("user-" + asked.user, None, ("require-sub",)))
    id_format = ",".join("%s:%%(%s)s" % (escape(quote(c)), names[c]) for c in asked.channels)
    return grip.instruct(
        response,
        channels,
        next_link(request, asked, make_id(last), more),
        meta={"id_format": id_format, "user": asked.user},
        keep_alive=("event: keep-alive\ndata:\n\n", KEEP_ALIVE),
        hold=not more,
    )


def publish_event(channel, number, kind, data, skip=""):
    item = {
        "channel": "events-" + quote(channel),
        "id": str(number),
        "prev-id": str(number - 1),
        "http-stream": {"content": encode_event(kind, data, "%I", escaped=True), "content-filters": ["build-id"]},
    }
    if skip:
        item["meta"] = {"skip_users": skip}
    grip.publish(item)


def publish(request):
    """Keeps the body as an event of ?channel= and publishes it, but not to the
    users of ?skip=, and not at all with ?lose=1."""
    channel, kind, data = request.GET["channel"], request.GET.get("type", "message"), request.body.decode()
    number = history.append(channel, kind, data)
    if "lose" not in request.GET:
        publish_event(channel, number, kind, data, request.GET.get("skip", ""))
    return JsonResponse({"id": number})


def republish(request):
    """Publishes an event of the history, once more or late."""
    channel = request.GET["channel"]
    publish_event(channel, *history.one(channel, int(request.GET["id"])))
    return JsonResponse({})


def kick(request):
    """Ends the streams of ?user= that have ?channel=."""
    user, channel = request.GET["user"], request.GET["channel"]
    told = {"condition": "forbidden", "text": "Permission denied to channels: " + channel, "channels": [channel]}
    common = {"channel": "user-" + user, "meta": {"require_sub": "events-" + channel}}
    grip.publish({**common, "id": "kick-1", "http-stream": {"content": encode_event("stream-error", told, "error")}})
    grip.publish({**common, "id": "kick-2", "prev-id": "kick-1", "http-stream": {"action": "close"}})
    return JsonResponse({})


def kind_of(line):
    parts = urlsplit(line["path"])
    query = parse_qs(parts.query)
    if "link" in query:
        return "recover" if "recover" in query else "page"
    return parts.path.strip("/")


def requests(request):
    """How many requests of each kind all processes of the app have begun: events
    for new streams, page and recover for next links, and the other views."""
    with open(os.environ["LEDGER"]) as lines:
        counts = Counter(kind_of(line) for line in map(json.loads, lines) if line["ev"] == "start")
    return JsonResponse(counts)


urlpatterns = [path("events/", events)] + [path(view.__name__, view) for view in (publish, republish, kick, requests)]
app = get_wsgi_application()
