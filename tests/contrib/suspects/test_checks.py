"""SUSPECTS names models and fields that can be searched."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from django_idempotency.contrib.suspects.checks import check_suspects


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([{"model": "payments.Charge"}], "same"),
        ([{"model": "no.Model", "same": ["amount"], "within": 5}], "no model 'no.Model'"),
        ("payments.Charge", "A list of dicts"),
    ],
)
def test_a_malformed_entry(settings: Settings, value: Any, words: str) -> None:
    settings.IDEMPOTENCY = {"SUSPECTS": value}
    (found,) = check_suspects()
    assert str(found.id).endswith("E003")
    assert words in f"{found.msg} {found.hint}"
    assert '"SUSPECTS": []' in str(found.hint)
