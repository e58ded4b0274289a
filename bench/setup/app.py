"""An app whose views hand their clients over: a whole Django in one file, as
gunicorn serves it. /m0 says it with M0's fields, /grip with GRIP's, and
/authorize lets Nchan hold whom it asks about."""

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

settings.configure(
    SECRET_KEY="only for the benchmark",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    APPEND_SLASH=False,
    USE_TZ=True,
    USE_I18N=False,
)


def m0(request):
    response = HttpResponse(content_type="text/event-stream")
    response["M0-Hold"] = "stream"
    response["M0-Channel"] = request.GET["c"]
    return response


def grip(request):
    response = HttpResponse(": open\n\n", content_type="text/event-stream")
    response["Grip-Hold"] = "stream"
    response["Grip-Channel"] = request.GET["c"]
    return response


def authorize(request):
    return HttpResponse(content_type="text/plain")


urlpatterns = [path(view.__name__, view) for view in (m0, grip, authorize)]
app = get_wsgi_application()
