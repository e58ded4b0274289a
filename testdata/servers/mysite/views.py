"""What the tests of servers ask for, in every kind of server."""

import hashlib
import os

from django.http import FileResponse, HttpResponse, JsonResponse, StreamingHttpResponse

import gate


def fast(request):
    return HttpResponse("fast\n", content_type="text/plain")


def wait(request):
    gate.wait(request.path)
    return HttpResponse("waited\n", content_type="text/plain")


async def wait_async(request):
    await gate.wait_async(request.path)
    return HttpResponse("waited\n", content_type="text/plain")


def upload(request):
    body = request.read()
    return JsonResponse({"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()})


def stream(request):
    """A piece, and after a wait at the gate another one: not known how long."""

    def pieces():
        yield "first\n"
        gate.wait(request.path)
        yield "second\n"

    return StreamingHttpResponse(pieces(), content_type="text/plain")


def file(request):
    return FileResponse(open(os.environ["FILE"], "rb"), content_type="application/octet-stream")
