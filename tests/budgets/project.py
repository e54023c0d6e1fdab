"""A bare project on SQLite in memory, and the journeys through it that the budgets count.

    python -m tests.budgets.project [apps | atomic]

prints the figures as JSON: of each journey, and which of the package's modules are loaded once a
guarded DRF view has answered its first request. With `apps`: those after `django.setup()` with this
app alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import django
from django.conf import settings

from .calls import Calls, loaded

MODULE = "tests.budgets.project"
KEY, OTHER_KEY = "6b1f0c1e-8a53-4c62-9e0d-0f6d0b7c9a11", "0d4f8f4a-41a5-4a54-8a49-3f6b5f1ad0c2"
BODY = b'{"amount": 2499, "currency": "inr"}'

urlpatterns: list[Any] = []


def configure(*apps: str, middleware: tuple[str, ...] = (), atomic: bool = False) -> None:
    settings.configure(
        SECRET_KEY="only for counting",
        ALLOWED_HOSTS=["testserver"],
        INSTALLED_APPS=apps,
        MIDDLEWARE=middleware,
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": ":memory:",
                "ATOMIC_REQUESTS": atomic,
            }
        },
        ROOT_URLCONF=MODULE,
        LOGGING_CONFIG=None,
    )
    django.setup()


class SignedIn:
    """A middleware whose requests have a user, without a query."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        from django.contrib.auth.models import User

        self.get_response, self.user = get_response, User(pk=1, username="ada")

    def __call__(self, request: Any) -> Any:
        request.user = self.user
        return self.get_response(request)


def plain(_request: Any) -> Any:
    """A view in a function would close over its models, and is not replayed by the middleware."""
    from django.contrib.auth.models import Group
    from django.http import JsonResponse

    return JsonResponse({"id": Group.objects.create(name="plain").pk}, status=201)


def routes() -> list[Any]:
    from django.contrib.auth.models import Group
    from django.urls import path
    from rest_framework.authentication import BaseAuthentication
    from rest_framework.permissions import IsAuthenticated
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from django_idempotency.rest_framework import IdempotentViewMixin

    class FromMiddleware(BaseAuthentication):
        def authenticate(self, request: Any) -> tuple[Any, None]:
            return request._request.user, None

    class Charge(IdempotentViewMixin, APIView):
        authentication_classes = (FromMiddleware,)
        permission_classes = (IsAuthenticated,)

        def post(self, request: Any) -> Response:
            return Response(
                {"id": Group.objects.create(name=f"drf {request.data['amount']}").pk}, status=201
            )

    return [path("drf", Charge.as_view()), path("plain", plain)]


def guarded_function() -> Callable[..., int]:
    from django.contrib.auth.models import Group

    from django_idempotency import idempotent_function

    @idempotent_function(key="amount", key_prefix="charge")
    def charge(*, amount: int) -> int:
        return int(Group.objects.create(name=f"function {amount}").pk)

    return charge


def journeys() -> dict[str, Any]:
    """Walk each journey twice to warm up, and count the third walk."""
    from django.contrib.auth.models import Group
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from django_idempotency.models import IdempotencyRecord

    client, charge, found = Client(), guarded_function(), {}

    def post(path: str, key: str = "") -> Callable[[], int]:
        headers = {"Idempotency-Key": key} if key else {}
        return lambda: (
            client.post(path, BODY, content_type="application/json", headers=headers).status_code
        )

    acts: dict[str, Callable[[], int]] = {
        "drf_first": post("/drf", KEY),
        "drf_replay": post("/drf", KEY),
        "drf_keyless": post("/drf"),
        "plain_first": post("/plain", OTHER_KEY),
        "plain_replay": post("/plain", OTHER_KEY),
        "plain_keyless": post("/plain"),
        "function_first": lambda: charge(amount=2499),
        "function_replay": lambda: charge(amount=2499),
    }
    for _walk in range(3):
        IdempotencyRecord.objects.all().delete()
        for name, act in acts.items():
            if not name.endswith("replay"):  # what would make the work's row a duplicate
                Group.objects.all().delete()
            with CaptureQueriesContext(connection) as queries, (calls := Calls()):
                response = act()
            found[name] = {"response": response, "statements": len(queries), **calls.figures()}
    return found


def main(*more: str) -> None:
    """Print what is counted, in a project that has more apps if some are given."""
    if sys.argv[1:] == ["apps"]:
        configure("django_idempotency")
        print(json.dumps({"loaded": loaded()}))
        return
    configure(
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "rest_framework",
        "django_idempotency",
        *more,
        middleware=(f"{MODULE}.SignedIn", "django_idempotency.middleware.IdempotencyMiddleware"),
        atomic=sys.argv[1:] == ["atomic"],
    )
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    urlpatterns.extend(routes())
    from django.test import Client

    Client().post("/drf", BODY, content_type="application/json", headers={"Idempotency-Key": KEY})
    print(json.dumps({"loaded": loaded(), "journeys": journeys()}))


if __name__ == "__main__":
    # The URLconf and the middleware are this module, not __main__.
    from tests.budgets.project import (
        main as once,
    )

    once()
