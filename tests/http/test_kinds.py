"""Kinds of views: found by their package and their folder; what is known about a view is asked
once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import ninja  # noqa: F401 - its kind is there once it is loaded
import pytest
from asgiref.sync import async_to_sync
from django.core.signals import setting_changed
from django.http import HttpRequest, HttpResponse

from django_idempotency import idempotency_exempt, idempotent
from django_idempotency.contrib.ninja.kind import Ninja
from django_idempotency.errors import ConfigurationError
from django_idempotency.http import kinds
from django_idempotency.http.kinds import is_there
from django_idempotency.http.markers import Mark
from django_idempotency.http.views import route_of


@pytest.mark.parametrize(
    ("module", "there"),
    [
        ("django", True),
        ("no_such_package", False),
        ("django_idempotency.contrib.ninja.kind", True),
        ("django_idempotency.contrib.no_such_wing.kind", False),
    ],
)
def test_what_is_there(module: str, there: bool) -> None:
    """A package that is not installed and a folder that is deleted are not there, and raise
    nothing.
    """
    assert is_there(module) is there


def test_a_kind_needs_its_package_and_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of its packages is enough; without our folder the kind is absent."""
    here = "django_idempotency.contrib.ninja.kind.Ninja"
    for table, expected in (
        ({here: ("no_such_package", "ninja")}, [Ninja]),
        ({here: ("no_such_package",)}, []),
        ({"django_idempotency.contrib.no_such_wing.kind.Ninja": ("ninja",)}, []),
    ):
        monkeypatch.setattr(kinds, "SHIPPED", table)
        assert [type(kind) for kind in kinds.kinds()] == expected


def test_a_kind_is_absent_until_its_package_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No view is of it before that; but a function with @idempotent() may become one later, and is
    prepared.
    """
    monkeypatch.setattr(
        kinds, "SHIPPED", {"django_idempotency.contrib.ninja.kind.Ninja": ("ninja",)}
    )
    monkeypatch.delitem(sys.modules, "ninja")
    assert kinds.kinds() == []
    assert [type(kind) for kind in kinds.kinds(to_come=True)] == [Ninja]


def test_a_view_is_asked_once() -> None:
    """The second request finds the answer of the first; after a change of settings it is asked
    again.
    """

    def pay(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    first = route_of(pay, "POST")
    assert route_of(pay, "POST") is first
    idempotency_exempt(pay)
    setting_changed.send(sender=None, setting="ROOT_URLCONF", value=None, enter=True)
    assert (first.exempt, route_of(pay, "POST").exempt) == (False, True)


def test_views_that_are_equal_are_not_the_same() -> None:
    """What is known of one is not said of another, and a view need have no hash."""

    @dataclass
    class View:
        idempotency_mark: Any = field(default=None, compare=False)

        def __call__(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    exempt, other = View(idempotency_mark=Mark(exempt=True)), View()
    assert exempt == other
    assert (route_of(exempt, "POST").exempt, route_of(other, "POST").exempt) == (True, False)


def test_an_async_function_inside_a_view_of_no_known_kind() -> None:
    """Its guard would not know how that view handles an exception: it refuses, and says what to
    do.
    """

    @idempotent(guarantee="lease")
    async def pay(request: Any) -> HttpResponse:
        return HttpResponse()

    request = SimpleNamespace(_request=HttpRequest(), parser_context={"view": object()})
    with pytest.raises(ConfigurationError, match="only adrf's views"):
        async_to_sync(pay)(request)
