"""A URLconf of an operation that the middleware leaves alone."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import path
from ninja import NinjaAPI

api = NinjaAPI(urls_namespace="by-route")


@api.post("/charges")
def charge(request: HttpRequest) -> None: ...


urlpatterns = [path("api/", api.urls)]
