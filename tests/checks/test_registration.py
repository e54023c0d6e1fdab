"""Checks are registered by their dotted paths, and imported when they run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.checks import CheckMessage, Tags, run_checks
from django.utils.module_loading import import_string

from django_idempotency import checks


@pytest.mark.parametrize("path", [*checks.CHECKS, *checks.DEPLOYED])
def test_every_path_leads_to_a_check(path: str) -> None:
    """A module that moves is found here, and not by a project that types `manage.py check`."""
    assert callable(import_string(f"{checks.__name__}.{path}"))


def test_a_check_is_registered_once() -> None:
    """An app may become ready more often, as where a test changes INSTALLED_APPS."""
    path = checks.DEPLOYED[0]
    assert checks.named(path) is checks.named(path)


@pytest.mark.parametrize(
    ("tags", "ran"),
    [
        ([checks.TAG], {"check_settings", "check_routes", "check_operations"}),
        ([Tags.urls], {"check_routes", "check_operations"}),
        (None, {"check_settings", "check_routes", "check_operations"}),
        ([Tags.database], set()),
    ],
)
def test_tags(monkeypatch: pytest.MonkeyPatch, tags: list[str] | None, ran: set[str]) -> None:
    """They choose which checks run."""
    called = set()

    def imported(path: str) -> Callable[..., list[CheckMessage]]:
        def check(**given: object) -> list[CheckMessage]:
            called.add(path.rpartition(".")[2])
            return []

        return check

    monkeypatch.setattr(checks, "import_string", imported)
    run_checks(tags=tags)
    assert {"check_settings", "check_routes", "check_operations"} & called == ran
