"""allauth's routes, a view that the project derives from allauth's, and one that it guards
anyway.
"""

from __future__ import annotations

from typing import Any

from allauth.headless.account.views import ManageEmailView
from allauth.headless.constants import Client
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from django_idempotency import idempotent


class OwnEmails(ManageEmailView):
    """A view of the project's."""


@idempotent()
class GuardedEmails(ManageEmailView):
    """A view of a project that guards it on purpose."""


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done", status=201)


options: dict[str, Any] = {"client": Client.BROWSER}
urlpatterns = [
    path("_allauth/", include("allauth.headless.urls")),
    path("own/", OwnEmails.as_api_view(**options)),
    path("guarded/", GuardedEmails.as_api_view(**options)),
    path("plain/", plain),
]
