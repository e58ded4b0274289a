from django.urls import path

from mysite import views

urlpatterns = [
    path("fast", views.fast),
    path("wait", views.wait),
    path("reports/wait", views.wait),
    path("reports/await", views.wait_async),
    path("await", views.wait_async),
    path("upload", views.upload),
    path("stream", views.stream),
    path("file", views.file),
]
