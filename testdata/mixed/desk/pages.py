from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from desk import store
from desk.forms import LoginForm, TicketForm


@require_safe
def index(request):
    return render(request, "desk/index.html", {"agent": request.session.get("agent")})


@require_safe
def about(request):
    return render(request, "desk/about.html", {"here": request.build_absolute_uri()})


@require_http_methods(["GET", "HEAD", "POST"])
def login(request):
    form = LoginForm(request.POST or None)
    if form.is_valid():
        name = form.cleaned_data["name"]
        if constant_time_compare(settings.AGENTS.get(name, ""), form.cleaned_data["password"]):
            request.session.cycle_key()
            request.session["agent"] = name
            return redirect("/tickets")
        form.add_error(None, "Name and password do not match.")
    return render(request, "desk/login.html", {"form": form}, status=400 if form.is_bound else 200)


@require_POST
def logout(request):
    request.session.flush()
    return redirect("/")


def tickets(request):
    if "agent" not in request.session:
        return redirect("/login?" + urlencode({"next": "/tickets"}))
    return render(request, "desk/tickets.html", {"agent": request.session["agent"], "tickets": store.TICKETS})


def new_ticket(request):
    form = TicketForm(request.POST or None)
    if form.is_valid():
        answer = HttpResponse(status=303)
        answer["Location"] = "/api/scan?" + urlencode({"q": form.cleaned_data["subject"]})
        return answer
    return render(request, "desk/new.html", {"form": form}, status=400 if form.is_bound else 200)


def preferences(request):
    """Three cookies, one of them a deleted one, and back what came."""
    answer = HttpResponse(f"theme {request.COOKIES.get('theme', 'none')}\n", content_type="text/plain")
    answer.set_cookie("theme", "dark, warm", max_age=3600, samesite="Lax")
    answer.set_cookie("rows", "25", path="/tickets", httponly=True)
    answer.delete_cookie("old-theme")
    return answer
