"""The testproject's routes, and those of the workloads."""

from django.urls import include, path

from .sagas import Bookings

urlpatterns = [path("sagas/", Bookings.as_view()), path("", include("testproject.urls"))]
