"""Common mistakes with the providers of the client half."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from django_idempotency.checks.settings import check_settings
from django_idempotency.contrib.client.checks import check_client

from ...checks.conftest import Configure, hints

DAY = timedelta(hours=24)


def client() -> Any: ...


async def alookup(call: Any) -> Any: ...


nothing = 7
HERE = __name__


def test_none(configure: Configure) -> None:
    configure()
    assert check_client() == []


@pytest.mark.parametrize(
    "options",
    [
        {"LIFETIME": DAY},
        {
            "LIFETIME": DAY,
            "CLIENT": f"{HERE}.client",
            "LOOKUP": f"{HERE}.client",
            "HEADER": "X-Key",
            "RETENTION": DAY,
            "MAX_BODY": 0,
        },
    ],
)
def test_valid(configure: Configure, options: dict[str, Any]) -> None:
    configure(PROVIDERS={"stripe": options})
    assert check_client() == []


@pytest.mark.parametrize(
    ("providers", "words"),
    [
        (["stripe"], "not a dict"),
        ({"": {"LIFETIME": DAY}}, "an alias is text"),
        ({"stripe": DAY}, "it is a timedelta, not a dict"),
        ({"stripe": {}}, '"LIFETIME" is what the provider publishes'),
        ({"stripe": {"LIFETIME": 86400}}, '"LIFETIME"'),
        ({"stripe": {"LIFETIME": timedelta(0)}}, '"LIFETIME"'),
        ({"stripe": {"LIFETIME": DAY, "RETENTION": timedelta(hours=1)}}, "is shorter than"),
        ({"stripe": {"LIFETIME": DAY, "HEADER": ""}}, '"HEADER"'),
        ({"stripe": {"LIFETIME": DAY, "DEADLINE_HEADER": ""}}, '"DEADLINE_HEADER" names a header'),
        ({"stripe": {"LIFETIME": DAY, "MAX_BODY": True}}, '"MAX_BODY"'),
        ({"stripe": {"LIFETIME": DAY, "CLIENT": client}}, '"CLIENT" is a dotted path'),
        ({"stripe": {"LIFETIME": DAY, "CLIENT": f"{HERE}.clint"}}, "cannot be imported"),
        ({"stripe": {"LIFETIME": DAY, "CLIENT": f"{HERE}.nothing"}}, "is not a function"),
        ({"stripe": {"LIFETIME": DAY, "LOOKUP": client}}, '"LOOKUP" is a dotted path'),
        (
            {"stripe": {"LIFETIME": DAY, "LOOKUP": f"{HERE}.alookup"}},
            'is not a function without "async"',
        ),
        ({"stripe": {"LIFETIME": DAY, "TTL": 1}}, "'TTL' is not one of its options"),
    ],
)
def test_invalid(configure: Configure, providers: Any, words: str) -> None:
    configure(PROVIDERS=providers)
    (found,) = check_client()
    assert words in found.msg
    assert "LIFETIME" in hints([found])["E120"]


def test_not_installed(configure: Configure) -> None:
    """There is no table, so every call would fail."""
    configure(PROVIDERS={"stripe": {"LIFETIME": DAY}})
    apps = [app for app in settings.INSTALLED_APPS if app != "django_idempotency.contrib.client"]
    with override_settings(INSTALLED_APPS=apps):
        (found,) = check_settings()
    assert '"django_idempotency.contrib.client" to INSTALLED_APPS' in hints([found])["E110"]
