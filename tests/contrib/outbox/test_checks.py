"""Common mistakes with the publisher of the outbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections
from django.test import override_settings
from pytest_django import Settings

from django_idempotency.checks.settings import check_settings
from django_idempotency.contrib.outbox.checks import check_outbox

from ...checks.conftest import Configure, hints


class Publisher:
    def publish(self, message: Any) -> None: ...


class Silent:
    def send(self, message: Any) -> None: ...


def publish(message: Any) -> None: ...


ready = Publisher()
nothing = 7

HERE = __name__


@pytest.mark.parametrize("name", ["Publisher", "publish", "ready"])
def test_what_can_publish(configure: Configure, name: str) -> None:
    configure(OUTBOX_PUBLISHER=f"{HERE}.{name}")
    assert check_outbox() == []


def test_none(configure: Configure) -> None:
    """No publisher is silent: the command takes one as an option."""
    configure()
    assert check_outbox() == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (f"{HERE}.publsh", "publsh"),
        ("nowhere.Publisher", "No module named 'nowhere'"),
        ("Publisher", "doesn't look like a module path"),
        (f"{HERE}.Silent", "neither a function publish(message)"),
        (f"{HERE}.nothing", "neither a function publish(message)"),
        (Publisher, "it is not a dotted path"),
        ("", "doesn't look like a module path"),
    ],
)
def test_what_cannot(configure: Configure, path: Any, words: str) -> None:
    configure(OUTBOX_PUBLISHER=path)
    (message,) = check_outbox()
    assert words in message.msg
    assert 'Type "OUTBOX_PUBLISHER": "shop.broker.Publisher"' in hints([message])["E045"]


def test_not_installed(configure: Configure, settings: Settings) -> None:
    """A publisher without the app in INSTALLED_APPS is an error."""
    configure(OUTBOX_PUBLISHER=f"{HERE}.Publisher")
    with override_settings(
        INSTALLED_APPS=[app for app in settings.INSTALLED_APPS if not app.endswith(".outbox")]
    ):
        assert "python manage.py migrate" in hints(check_settings())["E110"]


REPEATABLE = {"mysql": "repeatable read", "postgresql": 3}
COMMITTED = {"mysql": "READ COMMITTED", "postgresql": 2}


@pytest.fixture
def isolate(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return the settings that declare the isolation of the outbox's database."""
    configure()

    def isolate(**said: Any) -> None:
        declared = connections.settings["default"].get("OPTIONS", {})
        others = {name: value for name, value in declared.items() if name != "isolation_level"}
        monkeypatch.setitem(connections.settings["default"], "OPTIONS", {**others, **said})

    return isolate


def test_the_isolation_of_its_database(isolate: Callable[..., None]) -> None:
    """W065: the order within a key is kept at READ COMMITTED."""
    isolate()
    assert check_outbox() == []
    vendor = connection.vendor
    if vendor != "sqlite":
        isolate(isolation_level=COMMITTED[vendor])
        assert check_outbox() == []
        isolate(isolation_level=REPEATABLE[vendor])
        (found,) = check_outbox()
        assert '"repeatable read"' in found.msg
        assert 'DATABASES["default"]["OPTIONS"]' in hints([found])["W065"]


@pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="Django knows the levels of PostgreSQL by number"
)
def test_an_unknown_isolation_level(isolate: Callable[..., None]) -> None:
    """An invalid isolation level is silent: Django refuses it when it connects, and says why."""
    isolate(isolation_level=99)
    assert check_outbox() == []


@pytest.mark.skipif(
    "connection.vendor != 'mysql'", reason="Django leaves it to the server there alone"
)
def test_an_isolation_that_is_left_to_the_server(isolate: Callable[..., None]) -> None:
    """W065: the server's default is REPEATABLE READ unless it was changed."""
    isolate(isolation_level=None)
    assert "the server's default" in check_outbox()[0].msg


def test_malformed_settings_are_reported_by_another_check(settings: Settings) -> None:
    settings.IDEMPOTENCY = []
    assert check_outbox() == []
