from django.core.exceptions import SuspiciousOperation
from django.http import Http404, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET

from desk import store


def number(request, name, default, most):
    """A whole number from the query; anything else is answered 400."""
    text = request.GET.get(name, str(default))
    if not text.isdecimal() or int(text) > most:
        raise SuspiciousOperation(f"{name} must be a whole number up to {most}")
    return int(text)


@require_GET
def tickets(request):
    return JsonResponse({"tickets": store.TICKETS})


@csrf_exempt
@require_GET
def scan(request):
    """Goes through all tickets; without parameters everything matches."""
    text, state = request.GET.get("q", "").lower(), request.GET.getlist("state")
    found = [t for t in store.TICKETS if text in t["subject"].lower() and (not state or t["state"] in state)]
    return JsonResponse({"query": request.META["QUERY_STRING"], "found": found[: number(request, "limit", 100, 100)]})


@method_decorator(csrf_exempt, name="dispatch")
class Ticket(View):
    def get(self, request, number):
        ticket = store.find(number)
        if not ticket:
            raise Http404
        return JsonResponse(ticket)

    def delete(self, request, number):
        return HttpResponse(status=204 if store.find(number) else 404)


def status(request):
    """What the two sides agreed on, as the app sees it."""
    return JsonResponse({"upgrade": request.headers.get("Upgrade", ""), "method": request.method, "path": request.path})
