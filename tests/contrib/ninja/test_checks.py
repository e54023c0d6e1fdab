"""Operations of django-ninja: which the middleware leaves unguarded, and whether the others can
keep their policy.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.http import HttpRequest
from django.urls import path
from ninja import NinjaAPI
from pytest_django import Settings

from django_idempotency import idempotency_exempt, idempotent
from django_idempotency.checks.routed import check_routed
from django_idempotency.checks.routes import check_routes
from django_idempotency.contrib.ninja.checks import check_operations

from ...checks.conftest import Configure, hints, said


def operation() -> Any:
    """Make a separate function for each test: ninja stores its operation on it."""

    def charge(request: HttpRequest) -> None: ...

    return charge


def awaited() -> Any:
    async def charge(request: HttpRequest) -> None: ...

    return charge


@pytest.fixture
def api(settings: Settings) -> NinjaAPI:
    """Return an API that is the whole URLconf, once its operations are there."""
    api = NinjaAPI(urls_namespace="checked")
    api.get("/charges")(operation())
    urlconf = ModuleType("urlconf")
    urlconf.__getattr__ = lambda name: [path("api/", api.urls)]  # type: ignore[method-assign]
    settings.ROOT_URLCONF = urlconf
    return api


def found() -> dict[str, str]:
    return hints([*check_operations(), *check_routes()])


def test_what_is_in_order(api: NinjaAPI) -> None:
    """Guarded, exempt and safe operations are silent, sync or async, and no other check reports
    ninja's views.
    """
    api.post("/charges")(idempotent()(operation()))
    api.put("/charges")(idempotency_exempt(idempotent(guarantee="lease")(awaited())))
    api.delete("/charges")(idempotency_exempt(lambda request: None))
    assert found() == {}


def test_what_the_middleware_leaves_unguarded(api: NinjaAPI, settings: Settings) -> None:
    """One warning covers all of them; without the middleware there is none."""
    api.post("/charges")(operation())
    api.api_operation(["PATCH", "DELETE"], "/charges")(awaited())
    assert list(found()) == ["W074"]
    first = "tests.contrib.ninja.test_checks.operation.<locals>.charge (/api/charges)"
    assert f"2 run unguarded, such as {first}." in check_operations()[0].msg
    settings.MIDDLEWARE = []
    assert found() == {}


def test_what_required_would_refuse(api: NinjaAPI, configure: Configure) -> None:
    """An error: each request to the operation would raise."""
    api.post("/charges")(operation())
    configure(REQUIRED=True)
    assert list(found()) == ["E070"]


def test_a_policy_that_cannot_be(api: NinjaAPI) -> None:
    """The error names the function."""
    api.post("/charges")(idempotent(store="elsewhere")(operation()))
    assert list(found()) == ["E035"]
    assert "tests.contrib.ninja.test_checks.operation.<locals>.charge" in check_operations()[0].msg


def test_settings_that_make_an_async_operation_atomic(api: NinjaAPI, configure: Configure) -> None:
    """The settings gave the guarantee when the operation was decorated, and have changed since."""
    configure(GUARANTEE="lease")
    api.post("/charges")(idempotent()(awaited()))
    configure()
    assert list(found()) == ["E030"]


@pytest.mark.urls("tests.contrib.ninja.by_route")
def test_what_the_middleware_leaves(settings: Settings) -> None:
    """E147: an operation that ROUTES names checks access inside."""
    settings.IDEMPOTENCY = {"ROUTES": {"path:/api/": {"required": True}}}
    settings.MIDDLEWARE = ["django_idempotency.middleware.IdempotencyMiddleware"]
    assert "the view of /api/charges" in said(check_routed())["E147"]
