"""Frameworks that are not REST framework: a success whose writes an error has rolled back is
withheld there, too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import graphene
import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.test import Client
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from graphene_django.views import GraphQLView
from ninja import NinjaAPI
from ninja.security import django_auth

from django_idempotency import idempotent
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]
BOTH = 'mutation { good: charge(how: "written") { id } bad: charge(how: "raise") { id } }'


def pay(how: str) -> int:
    """Write a row; then catch, raise or ask for what rolls it back."""
    row = Effect.objects.create(label=how, attempt=1)
    match how:
        case "catch":
            with suppress(IntegrityError):
                Effect.objects.create(pk=row.pk, label="twice", attempt=1)
        case "raise":
            Effect.objects.create(pk=row.pk, label="twice", attempt=1)
        case "dry run":
            transaction.set_rollback(True)
    return int(row.pk)


ninja = NinjaAPI(urls_namespace="rolled_back", auth=django_auth)


@ninja.post("/charges/{how}/")
@idempotent()
def operation(request: HttpRequest, how: str) -> Any:
    return {"id": pay(how)}


class Charge(graphene.Mutation):
    class Arguments:
        how = graphene.String(required=True)

    id = graphene.Int()

    def mutate(self, _info: Any, how: str) -> Charge:
        return Charge(id=pay(how))


class Mutation(graphene.ObjectType):
    charge = Charge.Field()


class Query(graphene.ObjectType):
    nothing = graphene.Int()


@idempotent(authorize_replay=lambda _request, _outcome: True)
class Graph(GraphQLView):
    pass


urlpatterns = [
    path("ninja/", ninja.urls),
    path(
        "graphql/",
        csrf_exempt(Graph.as_view(schema=graphene.Schema(query=Query, mutation=Mutation))),
    ),
]


@pytest.fixture
def send(user: User) -> Any:
    client = Client(raise_request_exception=False)
    client.force_login(user)

    def send(how: str, *, graphql: bool = False) -> Any:
        headers = {"Idempotency-Key": "k" * 20}
        if not graphql:
            return client.post(f"/ninja/charges/{how}/", {}, "application/json", headers=headers)
        query = (
            how if how.startswith("mutation") else f'mutation {{ charge(how: "{how}") {{ id }} }}'
        )
        return client.post("/graphql/", {"query": query}, "application/json", headers=headers)

    return send


def left() -> tuple[Status, int]:
    return Status(IdempotencyRecord.objects.get().status), Effect.objects.count()


@pytest.mark.parametrize("graphql", [False, True], ids=["ninja", "graphene"])
def test_a_caught_error(send: Any, graphql: bool) -> None:
    """The framework's 200 is withheld."""
    response = send("catch", graphql=graphql)
    assert (response.status_code, response.json()["code"]) == (500, "writes-rolled-back")
    assert response["Idempotency-Status"] == "failed"
    assert left() == (Status.FREE, 0)


@pytest.mark.parametrize("graphql", [False, True], ids=["ninja", "graphene"])
def test_a_dry_run(send: Any, graphql: bool) -> None:
    """It is sent, and nothing of it is remembered."""
    response = send("dry run", graphql=graphql)
    assert (response.status_code, left()) == (200, (Status.FREE, 0))


def test_what_graphql_reports(send: Any) -> None:
    """A response that has errors and no data says that nothing was done."""
    response = send("raise", graphql=True)
    assert (response.status_code, list(response.json())) == (200, ["errors", "data"])
    assert response.json()["data"] == {"charge": None}
    assert left() == (Status.FREE, 0)


def test_what_graphql_reports_in_part(send: Any) -> None:
    """Data beside the errors says that something was done, and nothing was."""
    response = send(BOTH, graphql=True)
    assert (response.status_code, response.json()["code"]) == (500, "writes-rolled-back")
    assert left() == (Status.FREE, 0)
