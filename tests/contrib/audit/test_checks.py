"""Checks of the audit trail: the setting, the app, the retention, and the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as project
from pytest_django import Settings

from django_idempotency.checks.settings import check_settings
from django_idempotency.contrib.audit.checks import check_audit


def codes(check: Any = check_audit) -> list[str]:
    return [str(message.id).removeprefix("django_idempotency.") for message in check()]


def without_app(settings: Settings) -> None:
    settings.INSTALLED_APPS = [
        app for app in project.INSTALLED_APPS if app != "django_idempotency.contrib.audit"
    ]


def test_the_app_and_the_setting(settings: Settings) -> None:
    """One without the other writes nothing, and says so."""
    settings.IDEMPOTENCY = {}
    assert codes() == ["W111"]
    settings.IDEMPOTENCY = {"AUDIT": True}
    assert codes() == []
    without_app(settings)
    assert codes(check_settings) == ["E110"]
    settings.IDEMPOTENCY = {}
    assert codes(check_settings) == []


@pytest.mark.parametrize("wrong", ["yes", 1, None])
def test_audit_is_a_bool(settings: Settings, wrong: Any) -> None:
    settings.IDEMPOTENCY = {"AUDIT": wrong}
    assert codes(check_settings) == ["E003"]


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        (None, []),
        (60, []),
        (timedelta(days=400), []),
        (0, ["E003"]),
        (-1, ["E003"]),
        ("1y", ["E003"]),
        (True, ["E003"]),
    ],
)
def test_the_retention_is_a_duration(settings: Settings, kept: Any, found: list[str]) -> None:
    settings.IDEMPOTENCY = {"AUDIT": True, "AUDIT_RETENTION": kept}
    assert codes(check_settings) == found


class Apart:
    """Puts the trail into another database."""

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        return "trail" if model._meta.app_label == "idempotency_audit" else None


def test_another_database(settings: Settings) -> None:
    """With the trail elsewhere an event is not committed with its response.

    A lease has no transaction anyway.
    """
    settings.DATABASE_ROUTERS = [Apart()]
    settings.IDEMPOTENCY = {"AUDIT": True}
    assert codes() == ["W112"]
    settings.IDEMPOTENCY = {"AUDIT": True, "GUARANTEE": "lease"}
    assert codes() == []
