"""The page of `make demo`, and where it publishes."""

import json
import zlib

import holdfast
from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt, ensure_csrf_cookie
from django.views.decorators.http import require_POST, require_safe


@ensure_csrf_cookie
@require_safe
def page(request):
    """Its streams go on from where the events stood as this view started, so
    that it must not be kept."""
    answer = render(request, "desk/demo.html", {"position": holdfast.position(request) or ""})
    answer["Cache-Control"] = "no-store"
    return answer


@require_POST
def publish(request):
    """One event for everybody: those at the stream and those in the chat."""
    text = request.POST.get("text", "").strip()
    if not text:
        return JsonResponse({"error": "there is nothing to publish"}, status=400)
    accepted, event_id = holdfast.publish_with_id(["announcements", "agents"], text)
    if not accepted:
        return JsonResponse({"error": "the event was not accepted, the app's log says why"}, status=503)
    return JsonResponse({"id": event_id})


# Holdfast POSTs each message of a socket here and lets no other request in; it
# has checked the socket's Origin when it was opened.
@csrf_exempt
@require_POST
def message(request):
    """What somebody says in the chat, for all who are there; "/who" is
    answered to that socket alone."""
    text = request.body.decode(errors="replace").strip()
    who = request.session.get("agent") or guest(request.headers.get("M0-Connection", ""))
    if text == "/who":
        return reply(f"You are {who}.")
    if text and not holdfast.publish("agents", {"from": who, "text": text}, event="chat"):
        return reply("That was not published, the app's log says why.")
    return HttpResponse(status=204)


def guest(connection):
    """A name for somebody who has not signed in, the same as long as the socket lasts."""
    return f"guest {100 + zlib.crc32(connection.encode()) % 900}"


def reply(text):
    """An answer to the socket alone, in the form that events have there."""
    answer = HttpResponse(json.dumps({"id": None, "event": "reply", "data": text}))
    answer["M0-Reply"] = "text"
    return answer
