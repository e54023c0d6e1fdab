"""Keys that only the server makes, and the route that issues them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from pytest_django import Settings

from django_idempotency import idempotent
from django_idempotency.contrib.issued_keys.checks import check_issuing
from django_idempotency.contrib.issued_keys.rest import IdempotencyTokenView

from .conftest import hints

OURS = "django_idempotency.middleware.IdempotencyMiddleware"


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


ISSUED = path("orders/", idempotent(key_format="issued")(plain))


def found(settings: Settings, *patterns: Any) -> list[CheckMessage]:
    urlconf = ModuleType("urlconf")
    urlconf.urlpatterns = patterns  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = urlconf
    return check_issuing()


def test_nobody_issues(settings: Settings) -> None:
    """The view is named, and the line to add."""
    messages = found(settings, path("", plain), ISSUED)
    assert "urlpatterns" in hints(messages)["W088"]
    assert "The policy of tests.checks.test_issuing.plain (/orders/)" in messages[0].msg


def test_the_setting(settings: Settings) -> None:
    """Under the middleware the setting asks."""
    settings.IDEMPOTENCY, settings.MIDDLEWARE = {"KEY_FORMAT": "issued"}, [OURS]
    assert 'IDEMPOTENCY["KEY_FORMAT"]' in found(settings, path("", plain))[0].msg
    settings.MIDDLEWARE = []
    assert found(settings, path("", plain)) == []


@pytest.mark.parametrize(
    "issuing",
    [
        path("", include("django_idempotency.contrib.issued_keys.urls")),
        path("tokens", IdempotencyTokenView.as_view()),
    ],
    ids=["django", "rest"],
)
def test_a_route_issues(settings: Settings, issuing: Any) -> None:
    """Either of the two views, wherever it is."""
    assert found(settings, ISSUED, issuing) == []


def test_other_formats(settings: Settings) -> None:
    """Clients make their keys."""
    assert found(settings, path("", idempotent()(plain))) == []


def test_a_key_in_the_body(settings: Settings) -> None:
    """The page of a form has its own key."""
    from dataclasses import replace

    from django_idempotency.contrib.dialects import PROFILES

    in_body = replace(PROFILES["default"], name="ours", carrier="body", field="idempotency_key")
    assert found(settings, path("", idempotent(key_format="issued", profile=in_body)(plain))) == []
