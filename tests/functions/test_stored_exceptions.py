"""Exceptions that a release of November 2026 has stored are still raised, and are written alike."""

from __future__ import annotations

import pytest

from django_idempotency.functions.kept_exceptions import dump_error, load_error

from ..core.serialization.stored_values import recorded
from .stored_exceptions import STORED, errors

ERRORS = errors()
RECORDED = recorded(STORED)
ROWS = [
    pytest.param(error, data, id=f"{number}-{type(error).__name__}")
    for number, (error, data) in enumerate(zip(ERRORS, RECORDED, strict=True))
]


@pytest.mark.parametrize(("error", "data"), ROWS)
def test_what_was_stored(error: Exception, data: bytes) -> None:
    """It has its class, text, args and attributes."""
    back = load_error(data, [type(error)])
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back).keys() == vars(error).keys()
    if not data.endswith(b"],{}]}"):  # made by a constructor or a class method
        assert repr(back.args) == repr(error.args)
    for name in (*vars(error), "code", "order", "messages", "errno", "filename", "name", "value"):
        found = getattr(error, name, None)
        if isinstance(found, (str, int, list, dict)):
            assert getattr(back, name) == found


@pytest.mark.parametrize(("error", "data"), ROWS)
def test_what_is_stored(error: Exception, data: bytes) -> None:
    """A deployment of two versions reads what either of them stores."""
    stored = dump_error(error, [type(error)])
    if b"errors.pydantic.dev" in data:  # it names the version of pydantic
        assert str(load_error(stored, [type(error)])) == str(error)
    else:
        assert stored == data
