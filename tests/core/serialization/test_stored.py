"""Results that a release of November 2026 has stored are still read, and are written alike."""

from __future__ import annotations

from typing import Any

import pytest

from . import result_types as of
from .stored_values import ALL, recorded, results_of
from .test_typed_json import typed

RECORDED = recorded()
ROWS = [
    pytest.param(annotation, value, data, id=f"{number}-{type(value).__name__}")
    for number, ((annotation, value), data) in enumerate(zip(ALL, RECORDED, strict=True))
]


@pytest.mark.parametrize(("annotation", "value", "data"), ROWS)
def test_what_was_stored(annotation: Any, value: Any, data: bytes) -> None:
    """It equals what was stored then, in type and value."""
    back = results_of(annotation).load(data)
    if isinstance(value, of.Derived):  # a field that was never set has no text, and equals nothing
        assert vars(back) == vars(value)
    elif b"NaN" in data or b"nan" in data:
        assert str(back) == str(value)
    else:
        assert typed(back) == typed(value)


@pytest.mark.parametrize(("annotation", "value", "data"), ROWS)
def test_what_is_stored(annotation: Any, value: Any, data: bytes) -> None:
    """A deployment of two versions reads what either of them stores."""
    assert results_of(annotation).dump(value) == data
