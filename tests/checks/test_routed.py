"""What `manage.py check` and `idempotency_routes` say about ROUTES."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings

from django_idempotency.checks.routed import check_routed
from django_idempotency.checks.routes import check_routes
from django_idempotency.checks.settings import check_settings
from django_idempotency.http.plan import EVERY_VIEW, plan_of

from .conftest import said

VIEWS = "tests.entry_points.by_route_views"
OURS = "django_idempotency.middleware.IdempotencyMiddleware"

pytestmark = pytest.mark.urls(VIEWS)


def checked(
    settings: Settings, routes: Any, *, middleware: bool = True, **more: Any
) -> dict[str, str]:
    settings.IDEMPOTENCY = {"ROUTES": routes, **more}
    settings.MIDDLEWARE = [OURS] if middleware else []
    return said([*check_settings(), *check_routed(), *check_routes()])


@pytest.mark.parametrize(
    ("routes", "says"),
    [
        ([], "list, not a dict"),
        ({"pay:plain": {}}, "'pay:plain' has no known prefix. Type one of name:…"),
        ({"function:builtins.bool": {}}, "a policy is that of a route"),
        ({"name:pay:plain": "stripe"}, "has no dict of the fields of a policy"),
        ({"name:pay:plain": {"TTL": 5}}, "Policy has no field TTL. Did you mean ttl?"),
        ({"name:pay:plain": {"ttl": -5}}, "ttl is"),
        ({"name:pay:plain": {"scope": "no.such.function"}}, "No module named 'no'"),
        ({"name:pay:plain": {"key": "body.["}}, "body.["),
        (
            {"name:pay:plain": {"profile": "django_idempotency.contrib.dialects.Square"}},
            "the middleware looks for no key in a body",
        ),
    ],
)
def test_an_entry_that_cannot_be_read(settings: Settings, routes: Any, says: str) -> None:
    """E145 says which entry, and why."""
    found = checked(settings, routes)
    assert says in found["E145"]
    assert list(found) == ["E145"]


@pytest.mark.parametrize(
    ("routes", "code", "says"),
    [
        ({"name:pay:plan": {}}, "W146", "name:pay:"),
        ({"path:/pay/": {"guarantee": "lease"}, "name:pay:plain": {}}, "W146", "an entry above it"),
        ({"name:pay:plain": {"store": "none"}}, "E035", 'IDEMPOTENCY["ROUTES"]'),
        ({"name:pay:plain": {"ttl": 0.5}}, "E035", "CLAIM_LEASE"),
    ],
)
def test_an_entry_that_does_nothing(settings: Settings, routes: Any, code: str, says: str) -> None:
    """What matches nothing, comes too late, or cannot be kept."""
    assert says in checked(settings, routes)[code]


def test_async_views_and_the_middleware(settings: Settings) -> None:
    """The entry's guarantee decides whether an async view can be guarded; without the middleware
    nothing is.
    """
    assert "E030" in checked(settings, {"name:pay:plain": {"required": True}})
    assert checked(settings, {"name:pay:awaited": {"guarantee": "lease"}}) == {}
    assert list(checked(settings, {"name:pay:plain": {}}, middleware=False)) == ["E146"]


def test_where_a_policy_comes_from(settings: Settings) -> None:
    """`idempotency_routes` names the entry; where some requests have another one, that too."""
    settings.MIDDLEWARE = [OURS]
    settings.IDEMPOTENCY = {
        "ROUTES": {
            "path:/pay/berlin/": {"ttl": 5},
            "name:pay:of-shop": {"ttl": 7},
            "name:pay:plain": {"required": True},
        }
    }
    written = StringIO()
    call_command("idempotency_routes", "--json", stdout=written)
    rows = {row["name"]: row for row in json.loads(written.getvalue())}
    assert (rows["pay:plain"]["why"], rows["pay:plain"]["terms"]["required"]) == (
        "ROUTES: name:pay:plain",
        True,
    )
    assert (
        rows["pay:of-shop"]["why"] == "ROUTES: name:pay:of-shop; unless ROUTES: path:/pay/berlin/"
    )
    assert rows["pay:of-shop"]["terms"]["ttl"] == 7
    assert (rows["pay:other"]["why"], rows["pay:other"]["guard"]) == ("", "middleware")


def test_plans_are_compiled_once(settings: Settings) -> None:
    """As long as the settings are equal."""
    settings.IDEMPOTENCY = {"ROUTES": {"name:pay:plain": {"ttl": 5}}}
    assert plan_of(EVERY_VIEW).routed is plan_of(EVERY_VIEW).routed
    settings.IDEMPOTENCY = {"ROUTES": {"name:pay:plain": {"ttl": 6}}}
    assert [policy.ttl for _, policy in plan_of(EVERY_VIEW).routed] == [6]
