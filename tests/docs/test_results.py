"""The page on results names every type that is stored, and quotes the message as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import pytest

from django_idempotency.core.serialization.codecs import BUILTINS
from django_idempotency.core.serialization.results import Unstorable, results_for

from .pages import table, text

PAGE = "how-to/functions.md"


def test_every_type() -> None:
    """Types are listed by path, grouped by what they have in common."""
    rows = " ".join(f"{type_} {kept}" for type_, kept in table(PAGE, "| type |"))
    missing = [
        cls for cls in BUILTINS if f"`{cls.__name__}`" not in rows and not issubclass(cls, PurePath)
    ]
    assert missing == []
    assert "`PurePath`" in rows


def test_the_message() -> None:
    """The message is the one in the function's warning."""

    @dataclass
    class Line: ...

    Line.__module__, Line.__qualname__ = "shop", "Line"

    def pay() -> Any: ...

    with pytest.raises(Unstorable) as caught:
        results_for(pay).dump({"lines": [Line()]})
    assert str(caught.value) in text(PAGE).replace("\n", " ")
