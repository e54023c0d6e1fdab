"""The routes of the compared packages."""

from django.urls import path

from . import views

urlpatterns = [
    path("rest/work/", views.Work.as_view()),
    path("rest/atomic/", views.Atomic.as_view()),
    path("rest/lease/", views.Lease.as_view()),
    path("rest/by-method/", views.ByMethod.as_view()),
    path("rest/by-mixin/", views.ByMixin.as_view()),
    path("rest/idemkit/", views.IdemkitInDatabase.as_view()),
    path("rest/idemkit-redis/", views.IdemkitInRedis.as_view()),
]
