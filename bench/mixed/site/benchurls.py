"""A fast view, and event streams as a WSGI app can have them: by a view that
stays, and by one that hands its client over. Each asks the database first."""

import time

import holdfast  # urls.py of the help desk has put it on the path
from django.db import connection
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from helpdesk.urls import urlpatterns as helpdesk_urls


def query():
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return cursor.fetchone()[0]


def fast(request):
    return JsonResponse({"one": query()})


def stream(request):
    query()

    def events():
        yield ": open\n\n"
        while True:
            time.sleep(15)
            yield ": heartbeat\n\n"

    return StreamingHttpResponse(events(), content_type="text/event-stream")


def hold(request):
    query()
    return holdfast.hold(HttpResponse(": open\n\n", content_type="text/plain"), "announcements")


urlpatterns = [path("bench/" + view.__name__, view) for view in (fast, stream, hold)] + helpdesk_urls
