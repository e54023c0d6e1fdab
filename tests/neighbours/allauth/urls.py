"""allauth's routes, one view of the project made of them, and one that it guards all the same."""

from __future__ import annotations

from typing import Any

from allauth.headless.account.views import ManageEmailView
from allauth.headless.constants import Client
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from django_idempotency import idempotent


class OwnEmails(ManageEmailView):
    """A project's own."""


@idempotent()
class GuardedEmails(ManageEmailView):
    """A project that has thought about it."""


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done", status=201)


options: dict[str, Any] = {"client": Client.BROWSER}
urlpatterns = [
    path("_allauth/", include("allauth.headless.urls")),
    path("own/", OwnEmails.as_api_view(**options)),
    path("guarded/", GuardedEmails.as_api_view(**options)),
    path("plain/", plain),
]
