from django.urls import path

from desk import api, demo, files, live, pages, reports

urlpatterns = [
    path("", pages.index),
    path("about", pages.about),
    path("login", pages.login),
    path("logout", pages.logout),
    path("tickets", pages.tickets),
    path("tickets/new", pages.new_ticket),
    path("preferences", pages.preferences),
    path("api/tickets", api.tickets),
    path("api/tickets/<int:number>", api.Ticket.as_view()),
    path("api/scan", api.scan),
    path("rt/status", api.status),
    path("reports/slow", reports.slow),
    path("reports/job/<slug:name>", reports.job),
    path("reports/text", reports.text),
    path("reports/export", reports.export),
    path("files/", files.attach),
    path("files/raw", files.raw),
    path("files/big", files.big),
    path("files/manual", files.manual),
    path("live/feed", live.feed),
    path("live/ticket/<int:number>", live.ticket),
    path("live/poll", live.poll),
    path("live/socket", live.socket),
    path("ws/message", demo.message),
    path("demo/", demo.page),
    path("demo/publish", demo.publish),
]
