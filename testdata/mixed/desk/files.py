import hashlib
import re

from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from desk import store
from desk.api import number
from desk.forms import AttachmentForm

BLOCK = bytes(range(256)) * 256
MANUAL = "".join(f"{line:>5}  {store.SUBJECTS[line % 5]}\n" for line in range(1000)).encode()


@require_POST
def attach(request):
    form = AttachmentForm(request.POST, request.FILES)
    if not form.is_valid():
        return JsonResponse({"errors": form.errors}, status=400)
    file, digest = form.cleaned_data["file"], hashlib.sha256()
    for piece in file.chunks():
        digest.update(piece)
    return JsonResponse(
        {
            "ticket": form.cleaned_data["ticket"],
            "name": file.name,
            "type": file.content_type,
            "bytes": file.size,
            "sha256": digest.hexdigest(),
        },
        status=201,
    )


@csrf_exempt
@require_http_methods(["PUT", "POST"])
def raw(request):
    """Takes a body of any size and keeps nothing of it."""
    size, digest = 0, hashlib.sha256()
    while piece := request.read(64 * 1024):
        size += len(piece)
        digest.update(piece)
    return JsonResponse({"bytes": size, "sha256": digest.hexdigest()})


def big(request):
    size = number(request, "bytes", 1 << 20, 1 << 30)

    def pieces():
        for at in range(0, size, len(BLOCK)):
            yield BLOCK[: size - at]

    return StreamingHttpResponse(pieces(), content_type="application/octet-stream", headers={"Content-Length": str(size)})


def manual(request):
    """The manual, or the one range of it that is asked for (RFC 9110 §14)."""
    headers = {"Accept-Ranges": "bytes", "Last-Modified": "Tue, 02 Jan 2024 03:04:05 GMT"}
    whole = HttpResponse(MANUAL, content_type="text/plain", headers=headers)
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
    if not found or found[0] == "bytes=-":
        return whole
    first, last = found.groups()
    if first:
        start, end = int(first), min(int(last or len(MANUAL)), len(MANUAL) - 1)
    else:
        start, end = max(0, len(MANUAL) - int(last)), len(MANUAL) - 1
    if start > end:
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{len(MANUAL)}"})
    headers["Content-Range"] = f"bytes {start}-{end}/{len(MANUAL)}"
    return HttpResponse(MANUAL[start : end + 1], content_type="text/plain", headers=headers, status=206)
