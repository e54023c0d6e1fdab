"""The testproject's routes, and those of views.py."""

from django.urls import include, path

from . import views

urlpatterns = [
    path("ready/", views.ready),
    path("open/middleware/", views.bare),
    path("open/decorator/", views.decorated),
    path("open/by-headers/", views.by_headers),
    path("open/mixin/", views.Mixed.as_view()),
    path("open/elsewhere/", views.charged_elsewhere),
    path("open/slow/", views.slow),
    path("open/waiting/", views.waiting),
    path("open/orphaned/", views.orphaned),
    path("lease/decorator/", views.leased),
    path("lease/sent/", views.sent),
    path("lease/looked-up/", views.looked_up),
    path("lease/long/", views.long_leased),
    path("async/long/", views.along_leased),
    path("async/middleware/", views.abare),
    path("async/decorator/", views.adecorated),
    path("", include("testproject.urls")),
]
