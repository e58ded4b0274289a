from django.urls import include, path, re_path

import site_views as views

# Two ways lead to the same views: as they are, and below /one/.
both = [
    path("fast", views.fast),
    path("slow", views.slow),
    path("spin", views.spin),
    path("hang", views.hang),
    re_path(r"(?s)^echo(?:/.*)?$", views.echo),
    path("upload", views.upload),
    path("cookies", views.cookies),
    path("stream", views.stream),
    path("events", views.events),
    path("big", views.big),
    path("download/<path:name>", views.download),
    path("status/<int:code>", views.status),
    path("boom", views.boom),
]

urlpatterns = [*both, path("one/", include(both))]
