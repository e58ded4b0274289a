import os
import time

from django.conf import settings
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.views.decorators.gzip import gzip_page

from desk import store
from desk.api import number

JOB_SECONDS = 600


def slow(request):
    ms = number(request, "ms", 1500, 600_000)
    time.sleep(ms / 1000)
    return JsonResponse({"report": "slow", "ms": ms})


def job(request, name):
    """Waits for a job: until it has left its file."""
    done = os.path.join(settings.JOBS_DIR, name)
    until = time.monotonic() + JOB_SECONDS
    while not os.path.exists(done) and time.monotonic() < until:
        time.sleep(0.02)
    return JsonResponse({"job": name, "done": os.path.exists(done)})


@gzip_page
def text(request):
    lines = [f"{t['number']:>4}  {t['state']:<8}{t['subject']}\n" for t in store.TICKETS]
    return HttpResponse("".join(lines), content_type="text/plain; charset=utf-8")


def export(request):
    """A row at a time, and nobody knows how long it will be."""

    def rows():
        yield "number,state,subject\r\n"
        for _ in range(number(request, "times", 1, 1000)):
            for t in store.TICKETS:
                yield f"{t['number']},{t['state']},{t['subject']}\r\n"

    headers = {"Content-Disposition": 'attachment; filename="tickets.csv"'}
    return StreamingHttpResponse(rows(), content_type="text/csv; charset=utf-8", headers=headers)
