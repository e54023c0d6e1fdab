"""Async views of REST framework, as adrf has them: one that cannot be guarded is an error that
names it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from adrf.decorators import api_view
from adrf.views import APIView
from adrf.viewsets import ModelViewSet
from django.urls import path
from pytest_django import Settings
from rest_framework.response import Response

from django_idempotency import Policy, idempotency_exempt, idempotent
from django_idempotency.checks.routes import check_routes
from django_idempotency.rest_framework import IdempotentViewMixin

from ...checks.conftest import Configure, hints


class Bare(APIView):
    async def post(self, request: Any) -> Response:
        return Response()


class Exempt(APIView):
    @idempotency_exempt
    async def post(self, request: Any) -> Response:
        return Response()


class Atomic(IdempotentViewMixin, Bare):
    pass


class Leased(IdempotentViewMixin, Bare):
    idempotency = Policy(guarantee="lease")


class LeasedSet(IdempotentViewMixin, ModelViewSet):
    idempotency = Policy(guarantee="lease")


class Sync(IdempotentViewMixin, APIView):
    def post(self, request: Any) -> Response:
        return Response()


def function() -> Any:
    async def pay(request: Any) -> Response:
        return Response()

    return pay


def above() -> Any:
    return idempotent(guarantee="lease")(api_view(["POST"])(function()))


def below() -> Any:
    return api_view(["POST"])(idempotent(guarantee="lease")(function()))


def found(settings: Settings, callback: Any) -> dict[str, str]:
    urlconf = ModuleType("urlconf")
    urlconf.urlpatterns = [path("", callback)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = urlconf
    return hints(check_routes())


@pytest.mark.parametrize(
    "callback",
    [
        Leased.as_view(),
        LeasedSet.as_view({"post": "acreate"}),
        Sync.as_view(),
        Exempt.as_view(),
        above(),
        below(),
    ],
    ids=["mixin", "viewset", "sync", "exempt", "above", "below"],
)
def test_what_is_in_order(settings: Settings, callback: Any) -> None:
    """A lease, a sync handler, an exempt view, and the decorator above and below @api_view raise no
    finding.
    """
    assert found(settings, callback) == {}


@pytest.mark.parametrize(
    "callback", [Atomic.as_view(), Bare.as_view()], ids=["atomic", "under the middleware"]
)
def test_what_cannot_be_guarded(settings: Settings, callback: Any) -> None:
    """The error names the view, and says what to type."""
    assert list(found(settings, callback)) == ["E071"]
    assert callback.cls.__name__ in check_routes()[0].msg


def test_a_lease_for_the_project_does_not_make_the_middleware_guard_it(
    settings: Settings, configure: Configure
) -> None:
    """A replay would skip the view's own authentication, so the middleware refuses it; without ours
    it is silent.
    """
    configure(GUARANTEE="lease")
    assert list(found(settings, Bare.as_view())) == ["E071"]
    assert found(settings, Atomic.as_view()) == {}
    settings.MIDDLEWARE = []
    assert found(settings, Bare.as_view()) == {}


def test_a_guard_without_the_app(settings: Settings) -> None:
    """Only the app knows how to await the view: without it the guard is an error."""
    urlconf = ModuleType("urlconf")
    urlconf.__dict__["urlpatterns"] = [path("", Leased.as_view()), path("sync", Sync.as_view())]
    settings.ROOT_URLCONF = urlconf
    assert list(check_routes()) == []
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if not app.endswith("adrf")]
    (found,) = check_routes()
    assert "Leased" in found.msg
    assert "adrf to INSTALLED_APPS" in hints([found])["E149"]
