"""Exceptions of every kind that is kept. `stored_exceptions.json` has the bytes of each, in this
order, as the release of November 2026 wrote them.

One is added at the end, and `python -m tests.functions.stored_exceptions` appends its bytes. Bytes
that are there never change: records of deployments have them.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import django
import pydantic
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe
from rest_framework import exceptions, serializers

from ..core.serialization import result_types as of
from ..core.serialization.stored_values import record

STORED = Path(__file__).with_suffix(".json")
ORDER = of.Order(id=UUID(int=7), lines=[of.Line("tea", Decimal("1.50"))])


class SoldOut(exceptions.APIException):
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


class Rebuilt(Exception):
    """An exception that its constructor makes, of its attributes."""

    def __init__(self, code: int, source: object = None) -> None:
        super().__init__()
        self._code = code
        self.source = object()

    def __str__(self) -> str:
        return f"code {self._code}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Rebuilt, (self._code,)


class Order(serializers.Serializer[Any]):
    amount = serializers.IntegerField(min_value=1)


class Payment(pydantic.BaseModel):
    amount: int
    currency: str

    @pydantic.field_validator("currency")
    @classmethod
    def known(cls, value: str) -> str:
        raise ValueError(f"{value} is unknown")


def refused_by_serializer() -> Exception:
    """Return an error whose details are in a dict that knows the serializer."""
    try:
        Order(data={"amount": 0}).is_valid(raise_exception=True)
    except exceptions.ValidationError as error:
        return error
    raise AssertionError


def refused_by_model() -> Exception:
    """Return an error whose class is not Python's."""
    try:
        Payment.model_validate({"amount": "x", "currency": "xxx"})
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


def noted() -> Exception:
    """Return an error with a note, as `add_note()` of Python 3.11 leaves it."""
    error = LookupError("a")
    error.__dict__["__notes__"] = ["at the till"]
    return error


def errors() -> list[Exception]:
    """Return one of each kind."""
    return [
        LookupError(),
        LookupError("a", 1, (b"x",)),
        KeyError("a"),
        noted(),
        of.Declined(of.State.PAID, limit=Decimal("1.50")),
        of.Fielded(3),
        of.Slotted(3),
        of.Slotted(3, ORDER),
        OSError(2, "gone", "a file", None, "another"),
        FileNotFoundError(2, "gone"),
        ImportError("x", name="n", path="/p"),
        ModuleNotFoundError("x", name="n"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
        SyntaxError("no", ("a.py", 3, 1, "a b")),
        AttributeError("no", name="n"),
        NameError("no", name="n"),
        StopIteration(3),
        LookupError(ValueError("inside", 1)),
        LookupError(mark_safe("<b>"), lazystr("Januar"), type("Row", (dict,), {})(a=1)),
        SoldOut(),
        SoldOut({"seat": ["12a", "12b"]}),
        exceptions.ValidationError("no"),
        refused_by_serializer(),
        ValidationError("no", code="c", params={"a": 1}),
        ValidationError({"a": ["x", "y"]}),
        ValidationError(["x", "y"]),
        refused_by_model(),
        Reduced("lost", object()),
        Rebuilt(7),
    ]


if __name__ == "__main__":
    settings.configure()
    django.setup()
    from django_idempotency.functions.kept_exceptions import dump_error

    # Under the name that its classes have elsewhere.
    from . import stored_exceptions as itself  # noqa: PLW0406

    record(STORED, [dump_error(error, [type(error)]) for error in itself.errors()])
