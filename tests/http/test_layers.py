"""The layers of a view. One that wraps itself must not hang a request or a check."""

from __future__ import annotations

from functools import partial, update_wrapper, wraps
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from django_idempotency.checks.urlconf import open_handlers
from django_idempotency.decorators import idempotent
from django_idempotency.http.layers import closed_over, held_by, layers_of, place_of
from django_idempotency.http.views import route_of


def pay(request: HttpRequest) -> HttpResponse:
    return HttpResponse("paid")


def itself(request: HttpRequest) -> HttpResponse:
    return HttpResponse("paid")


wraps(itself)(itself)
posted: Any = require_POST(pay)
bound = partial(posted, amount=1)
named: Any = update_wrapper(partial(lambda view, request: view(request), posted), posted)


@pytest.mark.parametrize(
    ("view", "layers"),
    [
        (pay, [pay]),
        (posted, [posted, pay]),
        (bound, [bound, posted, pay]),
        (named, [named, named.func, posted, pay]),
        (itself, [itself]),
        (None, []),
    ],
    ids=["plain", "decorated", "partial", "partial that names its view", "itself", "nothing"],
)
def test_the_layers(view: Any, layers: list[Any]) -> None:
    """They end where nothing is wrapped, and at a layer that has been there."""
    assert list(layers_of(view)) == layers


@pytest.mark.parametrize("view", [bound, named], ids=["bound", "named"])
def test_a_partial_is_restricted_as_its_view_is(view: Any) -> None:
    """A check does not ask about methods that are refused."""
    assert open_handlers(view) == ["post"]


def test_a_request_and_a_check_look_through_a_view_that_wraps_itself() -> None:
    """Both used to loop forever; the decorator raised."""
    idempotent()(itself)
    assert not route_of(itself, "POST").exempt
    assert "post" in open_handlers(itself)


def test_what_a_function_has_closed_over() -> None:
    """Neither a name that is not bound yet nor a view without a closure is an error."""

    def view() -> object:
        return early, late

    early = 1
    assert closed_over(view) == {}
    late = 2
    assert closed_over(view) == {"early": 1, "late": 2}
    assert closed_over(pay) == closed_over(bound) == closed_over(None) == {}


def test_where_a_layer_is_written() -> None:
    """A decorator gives its function the name of the view, and not the place."""
    assert posted.__name__ == "pay"
    assert place_of(posted) == ("django.views.decorators.http", "inner")
    assert place_of(pay) == (__name__, "pay")
    assert place_of(bound) == place_of(None) == ("", "")


def test_what_a_layer_holds() -> None:
    """It may name as wrapped what it does not call."""
    assert held_by(posted) is pay
    assert held_by(pay) is None
    assert held_by(update_wrapper(require_POST(posted), pay)) is None
