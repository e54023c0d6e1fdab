"""The routes to compare."""

from django.urls import path

from . import views

urlpatterns = [
    path("bare/", views.bare),
    path("plain/", views.plain),
    path("atomic/", views.atomic),
    path("lease/", views.lease),
    path("steps/", views.steps),
    path("rest/authenticated/", views.Authenticated.as_view()),
    path("rest/bare/", views.BareCreate.as_view()),
    path("rest/guarded/", views.GuardedCreate.as_view()),
    path("rest/redis/", views.GuardedInRedis.as_view()),
]
