import datetime
import hashlib
import os
import time
from urllib.parse import quote

from django.core.exceptions import SuspiciousOperation
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.utils import timezone

HANG_SECONDS = 600
BLOCK = bytes(range(256)) * 256


def number(request, name, default, most):
    """A whole number from the query; anything else is answered 400."""
    text = request.GET.get(name, str(default))
    if not text.isdecimal() or int(text) > most:
        raise SuspiciousOperation(f"{name} must be a whole number up to {most}")
    return int(text)


def fast(request):
    return JsonResponse({"view": "fast"}, headers={"Cache-Control": "no-store"})


def slow(request):
    ms = number(request, "ms", 1500, 600_000)
    time.sleep(ms / 1000)
    return JsonResponse({"view": "slow", "ms": ms}, headers={"Cache-Control": "no-store"})


def spin(request):
    """Computes in Python without a pause: every other thread waits for the GIL."""
    ms = number(request, "ms", 1500, 600_000)
    rounds, until = 0, time.monotonic() + ms / 1000
    while time.monotonic() < until:
        rounds += 1
    return JsonResponse({"view": "spin", "ms": ms, "rounds": rounds})


def hang(request):
    release = os.environ.get("HANG_RELEASE")
    until = time.monotonic() + HANG_SECONDS
    while time.monotonic() < until:
        if release and os.path.exists(release):
            return JsonResponse({"view": "hang", "released": True})
        time.sleep(0.02)
    return JsonResponse({"view": "hang", "released": False})


def echo(request):
    body = request.body
    return JsonResponse(
        {
            "method": request.method,
            "raw_path": request.META.get("RAW_URI") or request.get_full_path(),
            "path_info": request.path_info,
            "query": request.META.get("QUERY_STRING", ""),
            "headers": {k: v for k, v in request.META.items() if k.startswith("HTTP_")},
            "content_type": request.META.get("CONTENT_TYPE", ""),
            "content_length": request.META.get("CONTENT_LENGTH", ""),
            "body_bytes": len(body),
            "body_sha256": hashlib.sha256(body).hexdigest(),
            "pid": os.getpid(),
        }
    )


def upload(request):
    size, digest = 0, hashlib.sha256()
    while piece := request.read(64 * 1024):
        size += len(piece)
        digest.update(piece)
    return JsonResponse({"body_bytes": size, "body_sha256": digest.hexdigest()})


def cookies(request):
    response = HttpResponse("three cookies\n", content_type="text/plain")
    expires = datetime.datetime(2037, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    response.set_cookie("sessionid", "s-1", expires=expires, httponly=True, samesite="Lax")
    response.set_cookie("csrftoken", "c-2", max_age=3600, path="/", secure=True)
    response.set_cookie("theme", "dark, warm")
    return response


def stream(request):
    n = number(request, "n", 5, 1_000_000)
    ms = number(request, "ms", 100, 600_000)

    def pieces():
        for i in range(n):
            if i:
                time.sleep(ms / 1000)
            yield f"piece {i}\n"

    return StreamingHttpResponse(pieces(), content_type="text/plain")


def events(request):
    ms = number(request, "ms", 1000, 600_000)

    def pieces():
        i = 0
        while True:
            yield f"id: {i}\nevent: tick\ndata: {i}\n\n"
            i += 1
            time.sleep(ms / 1000)

    headers = {"Cache-Control": "no-cache"}
    return StreamingHttpResponse(pieces(), content_type="text/event-stream", headers=headers)


def big(request):
    size = number(request, "bytes", 1 << 20, 1 << 30)
    whole, rest = divmod(size, len(BLOCK))
    body = BLOCK * whole + BLOCK[:rest]
    headers = {"X-Body-Sha256": hashlib.sha256(body).hexdigest(), "Content-Length": str(size)}
    return HttpResponse(body, content_type="application/octet-stream", headers=headers)


def download(request, name):
    """Lets whoever has the right cookie have a file, and is done: Holdfast sends it."""
    if request.COOKIES.get("who") != "ann":
        return HttpResponse("not for you\n", status=403, content_type="text/plain")
    response = HttpResponse()
    del response["Content-Type"]  # the file's own, by its name
    response["X-Accel-Redirect"] = "/protected/" + quote(name)
    response["Content-Disposition"] = "attachment"
    response["Cache-Control"] = "private, no-cache"
    response.set_cookie("seen", "1")
    return response


def status(request, code):
    if not 200 <= code <= 599:
        raise SuspiciousOperation("a status is a number from 200 to 599")
    response = HttpResponse(status=code, content_type="text/plain")
    if code not in (204, 304):
        response.content = f"status {code}\n"
    if code in (301, 302, 303, 307, 308):
        response["Location"] = "/fast"
    return response


def boom(request):
    raise RuntimeError("boom: this view always fails")
