"""Where clients hear of events: each view answers at once and is done.

The M0 fields are for Holdfast and never reach a client. A Holdfast that holds
keeps the client and feeds it what is published; one that does not serves the
answer as it is.
"""

from django.http import HttpResponse


def hold(kind, channels, text, **more):
    answer = HttpResponse(text, content_type="text/plain; charset=utf-8")
    answer["M0-Hold"] = kind
    answer["M0-Channel"] = ", ".join(channels)
    for name, value in more.items():
        answer["M0-" + name.title()] = value
    return answer


def feed(request):
    """All announcements."""
    return hold("stream", ["announcements"], ": welcome\n\n")


def ticket(request, number):
    """What happens to one ticket."""
    return hold("stream", [f"ticket-{number}", "announcements"], f": ticket {number}\n\n")


def poll(request):
    """The next announcement, or this text when none came in time."""
    return hold("response", ["announcements"], "nothing new\n", timeout="25")


def socket(request):
    """The agents' chat."""
    return hold("websocket", ["agents"], "come in\n", envelope="json")
