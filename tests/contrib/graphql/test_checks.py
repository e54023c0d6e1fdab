"""GraphQL views: the middleware leaves them unguarded, and `manage.py check` says so."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import graphene
import pytest
import strawberry
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from graphene_django.views import GraphQLView as GrapheneView
from pytest_django import Settings
from strawberry.django.views import AsyncGraphQLView
from strawberry.django.views import GraphQLView as StrawberryView

from django_idempotency import idempotency_exempt, idempotent
from django_idempotency.checks.routes import check_routes

from ...checks.conftest import Configure, hints


class Reads(graphene.ObjectType):
    one = graphene.Int()


@strawberry.type
class Fields:
    one: int


SCHEMA = graphene.Schema(query=Reads)
FIELDS = strawberry.Schema(query=Fields)
TERMS: dict[str, Any] = {"authorize_replay": lambda request, outcome: True}
GUARDED = idempotent(**TERMS)(GrapheneView)


def found(settings: Settings, callback: Any) -> dict[str, str]:
    urlconf = ModuleType("urlconf")
    urlconf.__dict__["urlpatterns"] = [path("graphql/", callback)]
    settings.ROOT_URLCONF = urlconf
    return hints(check_routes())


@pytest.mark.parametrize(
    "callback",
    [
        csrf_exempt(GrapheneView.as_view(schema=SCHEMA)),
        StrawberryView.as_view(schema=FIELDS),
        AsyncGraphQLView.as_view(schema=FIELDS),
    ],
    ids=["graphene", "strawberry", "async"],
)
def test_a_view_without_a_guard(settings: Settings, configure: Configure, callback: Any) -> None:
    """An unguarded view is a warning under the middleware, an error where that raises, and silent
    without it.
    """
    assert list(found(settings, callback)) == ["W084"]
    configure(REQUIRED=True)
    assert list(found(settings, callback)) == ["E082"]
    settings.MIDDLEWARE = []
    assert found(settings, callback) == {}


@pytest.mark.parametrize(
    "callback",
    [
        csrf_exempt(GUARDED.as_view(schema=SCHEMA)),
        idempotent(guarantee="lease", **TERMS)(AsyncGraphQLView).as_view(schema=FIELDS),
        idempotency_exempt(StrawberryView.as_view(schema=FIELDS)),
    ],
    ids=["guarded", "async", "exempt"],
)
def test_what_is_in_order(settings: Settings, callback: Any) -> None:
    """A view that is guarded, or left out on purpose, is silent."""
    assert found(settings, callback) == {}


def test_a_policy_that_cannot_be(settings: Settings) -> None:
    """A policy whose store does not exist is an error."""
    callback = idempotent(store="elsewhere", **TERMS)(GrapheneView).as_view(schema=SCHEMA)
    assert list(found(settings, callback)) == ["E035"]
