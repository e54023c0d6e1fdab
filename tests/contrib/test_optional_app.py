"""What apps add to each other's commands is asked of those that say so by their class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import apps

from django_idempotency.contrib.optional_app import Housekeeping, housekeeping
from django_idempotency.runtime.app_extensions import AppExtension, app_extensions

#: What `idempotency_erase` and `idempotency_stores reseal` ask.
ASKED = ("add_erase_arguments", "erase", "reseal")


def never_asked(found: Iterable[Any]) -> list[str]:
    """Name the extensions that have what no command would ask them."""
    return [
        type(each).__name__
        for each in found
        if not isinstance(each, Housekeeping) and any(hasattr(each, name) for name in ASKED)
    ]


def test_every_extension_is_asked_for_what_it_has() -> None:
    """One of another class would be skipped without a word, and what it stores of a person would
    stay.
    """
    configured = [getattr(config, "extension", None) for config in apps.get_app_configs()]
    assert never_asked(configured) == []
    assert [each for each in configured if each is not None] == app_extensions()
    assert (
        housekeeping()
        == [each for each in app_extensions() if any(hasattr(each, name) for name in ASKED)]
        != []
    )


def test_the_test() -> None:
    class Erases(AppExtension):
        def erase(self) -> None:
            pass

    class Reseals:
        def reseal(self) -> None:
            pass

    assert never_asked([None, AppExtension(), Housekeeping(), Erases(), Reseals()]) == [
        "Erases",
        "Reseals",
    ]
