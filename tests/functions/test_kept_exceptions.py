"""Exceptions of other packages: each comes back as it was, though its attributes alone could not be
stored.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe

from django_idempotency import idempotent_function
from django_idempotency.core.serialization.results import Unreadable, Unstorable
from django_idempotency.functions import current_operation
from django_idempotency.functions.kept_exceptions import dump_error, load_error

exceptions = pytest.importorskip("rest_framework.exceptions")
serializers = pytest.importorskip("rest_framework.serializers")


class SoldOut(exceptions.APIException):  # type: ignore[name-defined]
    """The one of the page about steps."""

    status_code, default_detail, default_code = 409, lazystr("The seat is sold."), "sold_out"


class Reduced(Exception):
    """An exception that says itself how it is made again: pickle would ask it."""

    def __init__(self, reason: str, source: object) -> None:
        super().__init__(f"declined: {reason}")
        self.reason = reason
        self.source = source

    @classmethod
    def again(cls, reason: str) -> Reduced:
        return cls(reason, object())

    def __reduce__(self) -> tuple[Any, ...]:
        return Reduced.again, (self.reason,)


class Elsewhere(Exception):
    """An exception whose reduction names what is not its own."""

    def __init__(self, source: object) -> None:
        super().__init__()
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        return json.loads, ("{}",)


def back(error: Exception) -> Any:
    kept = [type(error)]
    again = load_error(dump_error(error, kept), kept)
    assert type(again) is type(error)
    assert str(again) == str(error)
    return again


def invalid() -> Exception:
    """Return what a serializer raises: its details are in a dict that knows the serializer."""

    class Order(serializers.Serializer):  # type: ignore[name-defined]
        amount = serializers.IntegerField(min_value=1)

    order = Order(data={"amount": 0})
    with pytest.raises(exceptions.ValidationError) as caught:
        order.is_valid(raise_exception=True)
    error: Exception = caught.value
    return error


@pytest.mark.parametrize(
    "error",
    [SoldOut(), SoldOut({"seat": ["12a", "12b"]}), exceptions.ValidationError("no"), invalid()],
    ids=repr,
)
def test_of_rest_framework(error: Any) -> None:
    """With the codes of its details, which a project's exception handler asks for."""
    again = back(error)
    assert again.get_codes() == error.get_codes()
    assert again.get_full_details() == error.get_full_details()
    assert again.detail == error.detail


@pytest.mark.parametrize(
    "error",
    [
        ValidationError("no", code="c", params={"a": 1}),
        ValidationError({"a": ["x", "y"]}),
        ValidationError(["x", "y"]),
    ],
    ids=repr,
)
def test_of_django(error: ValidationError) -> None:
    """It holds itself."""
    assert back(error).messages == error.messages


def test_of_stripe() -> None:
    """It holds an object that knows the API's secret key, which is not stored: it is made again of
    the response.
    """
    stripe = pytest.importorskip("stripe")
    error = stripe.CardError(
        "Your card was declined.",
        "card",
        "card_declined",
        http_body="{}",
        http_status=402,
        json_body={"error": {"code": "card_declined", "decline_code": "lost_card"}},
        headers={"request-id": "req_1"},
    )
    stripe.api_key, before = "sk_live_secret", stripe.api_key
    try:
        data = dump_error(error, [stripe.CardError])
    finally:
        stripe.api_key = before
    assert b"sk_live" not in data
    again = load_error(data, [stripe.CardError])
    assert (again.code, again.param, again.http_status, again.user_message) == (  # type: ignore[attr-defined]
        "card_declined",
        "card",
        402,
        "Your card was declined.",
    )
    assert again.error.decline_code == "lost_card"  # type: ignore[attr-defined]


def test_of_pydantic() -> None:
    """Its class is not Python's: it is made again by what its reduction says."""
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):  # type: ignore[name-defined]
        amount: int
        currency: str

        @pydantic.field_validator("currency")
        @classmethod
        def known(cls, value: str) -> str:
            raise ValueError(f"{value} is unknown")

    with pytest.raises(pydantic.ValidationError) as caught:
        Order(amount="x", currency="xxx")
    errors = caught.value.errors(include_context=False)
    assert back(caught.value).errors(include_context=False) == errors
    assert len(errors) == 2


def test_by_its_own_reduction() -> None:
    again = back(Reduced("lost", object()))
    assert (again.reason, type(again.source)) == ("lost", object)


def test_what_is_text_comes_back_as_text() -> None:
    """Also a list or a dict of another class, and a translation in the language of that moment."""
    again = back(
        LookupError(
            mark_safe("<b>"),
            lazystr("Januar"),
            type("Rows", (list,), {})([1]),
            type("Row", (dict,), {})(a=1),
        )
    )
    assert [(type(arg), arg) for arg in again.args] == [
        (str, "<b>"),
        (str, "Januar"),
        (list, [1]),
        (dict, {"a": 1}),
    ]


def test_nothing_else_is_called() -> None:
    """A reduction may name any function: it is not stored.

    Nor do bytes make us call what is not the kept class's own.
    """
    with pytest.raises(Unstorable, match=r"error.source is a builtins.object"):
        dump_error(Elsewhere(object()), [Elsewhere])
    for method in ("with_traceback", "__reduce__", "mro", "eval"):
        data = b'1:{"$":["error","%s.Reduced",{},"%s",[],{}]}' % (
            __name__.encode(),
            method.encode(),
        )
        with pytest.raises(Unreadable):
            load_error(data, [Reduced])


def sold(*, idempotency_key: str) -> None:
    raise SoldOut


class Full(Exception):
    """Something else fails."""


@pytest.mark.django_db(transaction=True)
def test_a_step_that_is_sold_out(caplog: pytest.LogCaptureFixture) -> None:
    """The page's example warns of nothing; work that catches it and fails meets it again, with its
    code.
    """
    seen: list[Any] = []

    @idempotent_function(key="order", guarantee="lease", key_prefix="booking")
    def book(order: int) -> None:
        try:
            current_operation().step("seat", sold, keep=[SoldOut])  # type: ignore[union-attr]
        except SoldOut as error:
            seen.append((error.get_codes(), str(error)))
            raise Full from error

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with pytest.raises(Full):
                book(17)
    assert seen == [("sold_out", "The seat is sold.")] * 2
    assert "not stored" not in caplog.text
