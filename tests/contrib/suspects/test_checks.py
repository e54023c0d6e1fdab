"""SUSPECTS names models and fields that can be searched."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from django_idempotency.contrib.suspects.searching import check_suspects


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([{"model": "payments.Charge"}], "same"),
        ([{"model": "no.Model", "same": ["amount"], "within": 5}], "no model 'no.Model'"),
        ("payments.Charge", "A list of dicts"),
        # Values of a type that nothing takes are told, and crash neither the check nor the page.
        *(
            ([{"model": "payments.Charge", "same": ["amount"], "within": 5, **wrong}], words)
            for wrong, words in (
                ({"within": float("nan")}, "cannot be read"),
                ({"within": 1e300}, "cannot be read"),
                ({"within": 0}, "more than nothing"),
                ({"within": -5}, "more than nothing"),
                ({"using": [1]}, "cannot be read"),
                ({"timestamp": 7}, "cannot be read"),
                ({"key": 7}, "cannot be read"),
                ({7: 1, "x": 2}, "7 is not known"),
            )
        ),
    ],
)
def test_a_malformed_entry(settings: Settings, value: Any, words: str) -> None:
    settings.IDEMPOTENCY = {"SUSPECTS": value}
    (found,) = check_suspects()
    assert str(found.id).endswith("E003")
    assert words in f"{found.msg} {found.hint}"
    assert '"SUSPECTS": []' in str(found.hint)
