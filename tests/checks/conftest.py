"""What the tests of the checks share: settings for one test, and findings as id → hint."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from django.core.checks import CheckMessage
from pytest_django import Settings

from django_idempotency.functions import terms

Configure = Callable[..., None]


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the project's guarded functions, and none left behind by another test."""
    ours = {
        known
        for known in terms.declared()
        if str(getattr(known.function, "__module__", "")).startswith("testproject.")
    }
    monkeypatch.setattr(terms, "_DECLARED", ours)


@pytest.fixture
def configure(settings: Settings) -> Configure:
    """Return a function that sets IDEMPOTENCY to its keyword arguments."""

    def configure(**declared: Any) -> None:
        settings.IDEMPOTENCY = declared

    return configure


def said(messages: Iterable[CheckMessage]) -> dict[str, str]:
    """Return each short id with all that its message says: of fields that contradict each other, it
    says what to type.
    """
    found = list(messages)
    return {
        short: f"{message.msg} {hint}"
        for message, (short, hint) in zip(found, hints(found).items(), strict=True)
    }


def hints(messages: Iterable[CheckMessage]) -> dict[str, str]:
    """Return each short id with what its hint says to type. Every message has both."""
    found = {}
    for message in messages:
        assert isinstance(message.id, str)
        assert message.hint
        assert "%(" not in message.msg + message.hint
        found[message.id.removeprefix("django_idempotency.")] = message.hint
    return found
