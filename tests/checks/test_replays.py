"""Views whose replays the middleware cannot give: reported before a client needs one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.urls import path, re_path
from pytest_django import Settings

from django_idempotency.checks.guards import rows
from django_idempotency.checks.urlconf import Route
from django_idempotency.contrib.advice.surprises import check_replays, example_of

from ..entry_points.test_asked_again import THROUGH, UNFOLLOWED
from .conftest import Configure, hints

pytestmark = pytest.mark.urls("tests.entry_points.test_asked_again")


def test_each_thing_that_cannot_be_followed() -> None:
    """W077 for each, with a route; none for a view whose checks can all be repeated, or that guards
    itself.
    """
    found = check_replays()
    assert "below it, directly on the view" in hints(found)["W077"]
    said = " ".join(message.msg for message in found)
    assert [way for way in ("asked/", "open/", "below/", "exempt/") if way in said] == []
    # The routes that the middleware does not replay, as tests/entry_points/test_asked_again.py
    # shows.
    refused = {row.path for row in rows() if "replays are refused" in row.why}
    assert {path for path in refused if path.startswith("/unfollowed/")} == {
        f"/unfollowed/{name}/" for name in UNFOLLOWED
    }
    assert {path.split("/")[1] for path in refused} == {"unfollowed", "named"}


def test_what_the_project_names_is_not_reported(configure: Configure) -> None:
    """REPLAY_THROUGH counts for the checks as it does for replays."""
    configure(REPLAY_THROUGH=THROUGH)
    assert "/named/" not in " ".join(message.msg for message in check_replays())


def test_a_project_that_answers_for_its_replays_is_silent(configure: Configure) -> None:
    """With AUTHORIZE_REPLAY the project decides about each replay, so there is no warning."""
    configure(AUTHORIZE_REPLAY="tests.entry_points.test_replay_rights.denied")
    assert check_replays() == []


def test_nothing_is_reported_without_the_middleware(settings: Settings) -> None:
    """Without the middleware each view is guarded below its checks, or not at all."""
    settings.MIDDLEWARE = settings.MIDDLEWARE[:-1]
    assert check_replays() == []


def test_routes_that_seem_exempt(configure: Configure) -> None:
    """A project that guards its API only is not warned about its other routes, also those with
    parameters.
    """
    configure(EXEMPT=[r"regex:^/(?!api/)"])
    assert check_replays() == []


def route_to(settings: Settings, route: Any) -> None:
    settings.ROOT_URLCONF = urlconf = ModuleType("urlconf")
    urlconf.urlpatterns = [route]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "route",
    [
        path("<slug:organizer>/<slug:event>/orders/", UNFOLLOWED["own"]),
        path("<slug:organizer>/", UNFOLLOWED["own"]),
        re_path(r"^(?P<organizer>[^/]+)/control/.*$", UNFOLLOWED["own"]),
    ],
)
def test_a_route_that_begins_with_a_variable(
    configure: Configure, settings: Settings, route: Any
) -> None:
    """It seems exempt as any other, as in a project whose shops are its first segment."""
    route_to(settings, route)
    configure(EXEMPT=[r"regex:^/(?!api/)"])
    assert check_replays() == []


@pytest.mark.parametrize(
    "route",
    [
        re_path(".*", UNFOLLOWED["own"]),
        re_path("^(?P<rest>.+)/$", UNFOLLOWED["own"]),
        path("<path:rest>", UNFOLLOWED["own"]),
    ],
)
def test_a_route_for_every_path_does_not_seem_exempt(
    configure: Configure, settings: Settings, route: Any
) -> None:
    """It serves the API, too, although its example is outside."""
    route_to(settings, route)
    configure(EXEMPT=[r"regex:^/(?!api/)"])
    assert "W077" in hints(check_replays())
    configure(EXEMPT=["path:/"])
    assert check_replays() == []


@pytest.mark.parametrize(
    ("path", "example"),
    [
        ("/shops/<slug:shop>/orders/", "/shops/x/orders/"),
        (r"/(?P<shop>[^/]+)/orders\.(?P<kind>(csv|json))/?", "/x/orders.x/"),
        (r"/old/\d{4}/[a-z(]+/a", "/old/x/x/a"),
    ],
)
def test_anexample_of_a_route(path: str, example: str) -> None:
    """It has the constant parts of the route, and one word for each of the others."""
    assert example_of(Route(path, (), None, None)) == example
