"""The setting EXEMPT: what each kind of entry covers, and what is not an entry."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import RequestFactory
from django.urls import ResolverMatch
from django.views import View
from pytest_django import Settings

from django_idempotency.errors import ConfigurationError
from django_idempotency.http.exemptions import exemptions, parsed, within


def view(request: HttpRequest) -> None: ...


def is_probe(request: HttpRequest) -> bool:
    return "X-Probe" in request.headers


async def awaited(request: HttpRequest) -> bool:
    return False


class Hook(View):
    pass


def request(path: str, *namespaces: str, **headers: str) -> HttpRequest:
    sent = RequestFactory().post(path, headers=headers)
    sent.resolver_match = ResolverMatch(view, (), {}, namespaces=list(namespaces))
    return sent


def covers(entry: Any, sent: HttpRequest, callback: Any = view) -> bool:
    return parsed(entry).covers(sent, callback)


def test_a_namespace_and_those_inside() -> None:
    """Names match in full: api does not cover apiary."""
    assert covers("namespace:api", request("/", "api"))
    assert covers("namespace:api", request("/", "api", "v1"))
    assert covers("namespace:api:v1", request("/", "api", "v1"))
    assert not covers("namespace:v1", request("/", "api", "v1"))
    assert not covers("namespace:api", request("/", "apiary"))
    assert not covers("namespace:api", request("/"))


@pytest.mark.parametrize(
    "callback",
    [view, Hook.as_view(), functools.wraps(view)(lambda request: None)],
    ids=["function", "class", "wrapped"],
)
def test_a_module_and_those_inside(callback: Any) -> None:
    """A class counts with its module, a decorated function with the function's module."""
    assert covers(f"module:{__name__}", request("/"), callback)
    assert covers("module:tests", request("/"), callback)
    assert not covers("module:test", request("/"), callback)
    assert not covers(f"module:{__name__}.inner", request("/"), callback)


@pytest.mark.parametrize(
    ("path", "above", "is_within"),
    [
        ("/webhooks/", "/webhooks/", True),
        ("/webhooks", "/webhooks/", True),
        ("/webhooks/stripe/", "/webhooks", True),
        ("/webhooks-old/", "/webhooks", False),
        ("/a/webhooks/", "/webhooks", False),
        ("/anything/", "/", True),
    ],
)
def test_a_path_and_those_below(path: str, above: str, is_within: bool) -> None:
    """Paths match by segment."""
    assert within(path, above) is is_within
    assert covers(f"path:{above}", request(path)) is is_within


def test_an_expression_is_searched() -> None:
    """An expression is searched in the path, without the query."""
    assert covers(r"regex:^/v\d+/token/$", request("/v12/token/?a=1"))
    assert not covers(r"regex:^/v\d+/token/$", request("/v12/token/more/"))


@pytest.mark.parametrize("entry", [is_probe, f"function:{__name__}.is_probe"])
def test_a_function_is_asked(entry: Any) -> None:
    """A function may be given itself, or by its dotted path."""
    assert covers(entry, request("/", **{"X-Probe": "1"}))
    assert not covers(entry, request("/"))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("admin", "has no known prefix"),
        ("namespace:", "has no known prefix"),
        ("view:shop.pay", "has no known prefix"),
        (("namespace", "admin"), "has no known prefix"),
        (42, "has no known prefix"),
        ("path:webhooks/", "path:/webhooks/"),
        ("regex:(", "not a regular expression"),
        (awaited, "sync function"),
        (f"function:{__name__}.awaited", "sync function"),
        (f"function:{__name__}.KEY", "does not define"),
        ("function:no.such.thing", "No module named"),
    ],
)
def test_what_is_not_an_entry(settings: Settings, entry: Any, said: str) -> None:
    """A request raises, since a wrong entry could otherwise exempt nothing, or everything."""
    settings.IDEMPOTENCY = {"EXEMPT": ["namespace:other", entry]}
    with pytest.raises(ConfigurationError, match=said):
        exemptions()


@pytest.mark.parametrize("value", ["namespace:admin", None, 5])
def test_what_is_not_a_list(settings: Settings, value: Any) -> None:
    """A string is not a list of one entry."""
    settings.IDEMPOTENCY = {"EXEMPT": value}
    with pytest.raises(ConfigurationError, match="EXEMPT"):
        exemptions()
