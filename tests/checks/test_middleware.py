"""The order of MIDDLEWARE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.http import HttpRequest, HttpResponse
from pytest_django import Settings

from django_idempotency.checks.middleware import check_middleware
from django_idempotency.middleware import IdempotencyMiddleware

from .conftest import hints

OURS = "django_idempotency.middleware.IdempotencyMiddleware"
CSRF = "django.middleware.csrf.CsrfViewMiddleware"
LOGIN = "django.contrib.auth.middleware.LoginRequiredMiddleware"
USER = "django.contrib.auth.middleware.AuthenticationMiddleware"
SESSION = "django.contrib.sessions.middleware.SessionMiddleware"
HERE = __name__


class Subclass(IdempotencyMiddleware):
    """A middleware of the project's."""


class OwnAuthenticationMiddleware(AuthenticationMiddleware):
    """A middleware of the project's."""


class Apologetic:
    """Responds for a view that raised."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse:
        raise AssertionError


class Counting:
    """Has a process_view, which only observes, or refuses: nobody can tell."""

    def process_view(self, request: HttpRequest, *args: Any) -> None:
        request.META["counted"] = [name for name in args if name]


def by_function(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    return get_response


class Explosive:
    """A middleware that a check must not build."""

    def __init__(self, get_response: Any) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ([OURS, CSRF], {"W072": CSRF}),
        ([USER, OURS, LOGIN], {"W072": LOGIN}),
        ([f"{HERE}.Subclass", CSRF], {"W072": CSRF}),  # a subclass is ours, too
        ([SESSION, OURS, USER], {"E022": USER}),
        (
            [OURS, f"{HERE}.OwnAuthenticationMiddleware"],
            {"E022": f"{HERE}.OwnAuthenticationMiddleware"},
        ),
        ([OURS, USER, CSRF], {"E022": USER, "W072": CSRF}),
        ([OURS, f"{HERE}.Counting"], {"W072": f"{HERE}.Counting"}),
        ([OURS, CSRF, OURS], {"W072": CSRF}),
    ],
)
def test_the_wrong_order(settings: Settings, order: list[str], found: dict[str, str]) -> None:
    """The hint names the line to move, and the line to put it below."""
    settings.MIDDLEWARE = order
    reported = hints(check_middleware())
    assert reported.keys() == found.keys()
    for code, named in found.items():
        assert f'"{named}"' in reported[code]
        assert f'"{OURS}"' in reported[code]


@pytest.mark.parametrize(
    "order",
    [
        [],
        [SESSION, CSRF, USER],  # without ours, every order is right
        [SESSION, CSRF, USER, LOGIN, OURS],
        # No process_view.
        [
            CSRF,
            USER,
            OURS,
            "django.middleware.gzip.GZipMiddleware",
            f"{HERE}.by_function",
        ],
        [CSRF, USER, OURS, OURS],  # the second has nothing to do
        [f"{HERE}.Apologetic", OURS],
        [OURS, f"{HERE}.Apologetic"],
        [CSRF, USER, OURS, f"{HERE}.Explosive"],
        [CSRF, USER, OURS, "no.such.Middleware", "broken"],  # Django reports it
    ],
)
def test_the_right_order_is_silent(settings: Settings, order: list[str]) -> None:
    """The right order is silent. Nothing is built, and Django reports what cannot be imported."""
    settings.MIDDLEWARE = order
    assert check_middleware() == []
