"""Policies per action: what is published of each is what the server does."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from rest_framework.decorators import action
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.viewsets import ViewSet

from django_idempotency.contrib.publishing.views import policies
from django_idempotency.core.policy import Policy
from django_idempotency.rest_framework import IdempotentViewMixin

from .test_schema import generated, operation

pytestmark = [pytest.mark.any_database, pytest.mark.django_db, pytest.mark.urls(__name__)]

REQUIRED = Policy(required=True, ttl=3600)


class HasNumber(BasePermission):
    """Reads the body before the guard opens."""

    def has_permission(self, request: Request, view: object) -> bool:
        return "number" in cast("dict[str, object]", request.data)


class Orders(IdempotentViewMixin, ViewSet):
    """DRF's own idiom: an action takes a policy as it takes permissions."""

    def create(self, request: Request) -> Response:
        return Response(status=201)

    @action(detail=False, methods=["post"], idempotency=REQUIRED)
    def pay(self, request: Request) -> Response:
        return Response(status=201)

    @action(
        detail=False,
        methods=["post"],
        idempotency=Policy(key="body.number"),
        permission_classes=[HasNumber],
    )
    def numbered(self, request: Request) -> Response:
        return Response(request.data, status=201)


class ByAction(Orders):
    """The class decides, by what is known of every request to a route."""

    def get_idempotency_policy(self) -> Policy:
        return (
            REQUIRED
            if self.action == "create" and self.request.method == "POST"
            else self.idempotency
        )


class ByPerson(Orders):
    """The class decides by the person, which no document can know."""

    def get_idempotency_policy(self) -> Policy:
        return REQUIRED if getattr(self.request, "user", None) else Policy()


router = SimpleRouter()
for prefix, viewset in (("orders", Orders), ("by-action", ByAction), ("by-person", ByPerson)):
    router.register(prefix, viewset, basename=prefix)
urlpatterns = router.urls

ROUTES = [
    ("/orders/", False),
    ("/orders/pay/", True),
    ("/by-action/", True),
    ("/by-action/pay/", True),
    ("/by-person/", None),
]


@pytest.mark.parametrize(("path", "required"), ROUTES)
def test_each_action_has_its_own(path: str, required: bool | None, user: User) -> None:
    """The page, OpenAPI, the list of routes and the server agree on who needs a key; where it
    varies, nothing says so.
    """
    (page,) = [each for each in policies() if each["path"] == path]
    assert (page.get("required"), page["varies"]) == (required, required is None)

    made = operation(generated(), path)
    (reference,) = [each["$ref"] for each in made["parameters"]]
    assert ("Required" in reference, made["x-idempotency"].get("required")) == (
        required is True,
        required,
    )

    out = StringIO()
    call_command("idempotency_routes", path, "--json", stdout=out)
    row = next(each for each in json.loads(out.getvalue()) if each["path"] == path)
    assert row["terms"].get("required") == required
    assert row["why"] == ("its policy depends on the request" if required is None else "")

    client = Client()
    client.force_login(user)
    refused = client.post(path).status_code == 400
    assert refused == (required is not False)


def test_an_action_selects_its_key(user: User) -> None:
    """The policy of an action is whole: its key is selected from the body, which only that policy
    asks for.
    """
    client = Client()
    client.force_login(user)
    answers = [
        client.post("/orders/numbered/", {"number": "n-1"}, "application/json") for _ in range(2)
    ]
    assert [each.get("Idempotency-Status") for each in answers] == ["created", "replayed"]


def test_what_is_no_policy() -> None:
    """E038 sees an action's, too: a dict is not a Policy."""
    from django_idempotency.checks.routes import own_problems

    view: Any = Orders.as_view({"post": "pay"}, idempotency={"required": True})
    assert "E038" in str(next(own_problems(view, "it")).id)
