"""Where clients hear of events: each view answers at once and is done.

The M0 fields are for Holdfast and never reach a client. A Holdfast that holds
keeps the client and feeds it what is published; one that does not serves the
answer as it is.
"""

import holdfast
from django.http import HttpResponse


def hold(text, *channels, **how):
    return holdfast.hold(HttpResponse(text, content_type="text/plain; charset=utf-8"), *channels, **how)


def feed(request):
    """All announcements."""
    return hold(": welcome\n\n", "announcements")


def ticket(request, number):
    """What happens to one ticket."""
    return hold(f": ticket {number}\n\n", f"ticket-{number}", "announcements")


def poll(request):
    """The next announcement, or this text when none came in time."""
    return hold("nothing new\n", "announcements", mode="response", timeout=25)


def socket(request):
    """The agents' chat."""
    return hold("come in\n", "agents", mode="websocket", envelope=True)
