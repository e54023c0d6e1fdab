"""One part, store or record that fails stops no other: purge, erase and reseal do what they can,
and then say what they could not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import OperationalError
from pytest_django import Settings

from django_idempotency.contrib.at_rest.sealed import Keyring, SealedStore
from django_idempotency.contrib.optional_app import Housekeeping, housekeeping
from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.records import Outcome
from django_idempotency.errors import LostRace, RecordUnreadable, StoreUnavailable
from django_idempotency.management import base
from django_idempotency.runtime.app_extensions import AppExtension, app_extensions
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.contract.base import Contract
from django_idempotency.testing.tickets import make_ticket
from tests.contrib.at_rest.sealed.keys import FIRST, SECOND

pytestmark = [pytest.mark.any_database, pytest.mark.django_db]
MINE = "user:auth.user:42"
OUTCOME = Outcome(201, (), b"secret")
ERRORS = [
    OperationalError("no such table"),
    ImproperlyConfigured("no such provider"),
    StoreUnavailable(),
    LostRace(),
]

#: Command → what it asks of each app, and how it is called.
COMMANDS: dict[str, tuple[str, Callable[[], list[AppExtension]], tuple[str, ...]]] = {
    "purge_idempotency": ("purging", app_extensions, ()),
    "idempotency_erase": ("erase", housekeeping, ("--scope", MINE, "--no-input")),  # type: ignore[dict-item]
    "idempotency_stores reseal": ("reseal", housekeeping, ()),  # type: ignore[dict-item]
}


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.fixture
def inner() -> Iterator[MemoryStore]:
    """Four responses of one person, sealed with a key that no longer seals."""
    inner = MemoryStore()
    with stores.replaced("default", SealedStore(inner, Keyring([FIRST]))):
        for number in range(4):
            ticket = make_ticket(scope=MINE, key=f"key-{number}")
            assert Contract().leave(stores["default"], ticket, SettledState.COMPLETED, OUTCOME)
    with stores.replaced("default", SealedStore(inner, Keyring([SECOND, FIRST]))):
        yield inner


def run(command: str, *args: str) -> str:
    out = StringIO()
    call_command(command, *args, stdout=out, stderr=StringIO())
    return out.getvalue()


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def noting(app: AppExtension, asked: list[AppExtension]) -> Callable[..., Any]:
    def note(*_: Any, **__: Any) -> tuple[()]:
        asked.append(app)
        return ()

    return note


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_one_app(
    inner: MemoryStore, monkeypatch: pytest.MonkeyPatch, command: str, error: Exception
) -> None:
    """Whichever app fails, all others are asked; and the error says what it was."""
    verb, asked_of, args = COMMANDS[command]
    found = asked_of()
    assert len(found) > 1
    for broken in found:
        asked: list[AppExtension] = []
        for each in found:
            monkeypatch.setattr(
                each, verb, raising(error) if each is broken else noting(each, asked)
            )
        with pytest.raises(CommandError):
            run(*command.split(), *args)
        assert asked == [each for each in found if each is not broken]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_records(inner: MemoryStore, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """A store that does not respond keeps no app from being asked."""
    verb, asked_of, args = COMMANDS[command]
    asked: list[AppExtension] = []
    for each in asked_of():
        monkeypatch.setattr(each, verb, noting(each, asked))
    for name in ("scan", "purge"):
        monkeypatch.setattr(inner, name, raising(StoreUnavailable()))
    with pytest.raises(CommandError, match="did not respond"):
        run(*command.split(), *args)
    assert asked == asked_of()


def test_one_store(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person is erased from every store that responds."""
    memory = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}
    settings.IDEMPOTENCY = {"STORES": {"default": memory, "other": memory}}
    for alias in ("default", "other"):
        assert Contract().leave(
            stores[alias], make_ticket(scope=MINE), SettledState.COMPLETED, OUTCOME
        )
    monkeypatch.setattr(stores["default"], "scan", raising(StoreUnavailable()))
    with pytest.raises(CommandError, match="'default' did not respond"):
        run("idempotency_erase", "--scope", MINE, "--no-input")
    (left,) = stores["other"]._records.values()  # type: ignore[attr-defined]
    assert left.scope != MINE


@pytest.mark.parametrize("command", ["idempotency_erase", "idempotency_stores reseal"])
def test_one_record(inner: MemoryStore, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """A record that others lock all the time is left and counted. All others are done."""
    locked = make_ticket(scope=MINE, key="key-1").id
    for verb in ("change", "settle"):
        real = getattr(inner, verb)

        def locking(first: Any, *args: Any, do: Callable[..., Any] = real, **more: Any) -> Any:
            if getattr(first, "id", first) == locked:
                raise LostRace
            return do(first, *args, **more)

        monkeypatch.setattr(inner, verb, locking)
    before = dict(inner._records)
    with pytest.raises(CommandError, match=r"1 left|1 responses are locked"):
        run(*command.split(), *COMMANDS[command][2])
    assert [record.id for name, record in inner._records.items() if record == before[name]] == [
        locked
    ]


def test_a_record_that_cannot_be_read(inner: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted as one that no key opens, and the others are resealed."""
    damaged, real = make_ticket(scope=MINE, key="key-1").id, inner.get

    def get(record: Any) -> Any:
        if record == damaged:
            raise RecordUnreadable
        return real(record)

    monkeypatch.setattr(inner, "get", get)
    with pytest.raises(CommandError, match="1 responses cannot be opened"):
        run("idempotency_stores", "reseal")
    with pytest.raises(CommandError, match="1 responses cannot be opened"):
        assert "3 responses resealed" in run("idempotency_stores", "reseal")


@pytest.mark.parametrize("command", ["idempotency_erase", "idempotency_stores reseal"])
def test_a_store_that_is_locked(
    inner: MemoryStore, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """If nothing can be changed, the command ends soon: it does not try each of a million records
    five times.
    """
    monkeypatch.setattr(base, "MOST_LOST", 2)
    tried: list[Any] = []

    def locking(*args: Any, **_: Any) -> Any:
        tried.append(args)
        raise LostRace

    monkeypatch.setattr(inner, "change", locking)
    monkeypatch.setattr(inner, "settle", locking)
    with pytest.raises(CommandError, match="Lost the race for a record 5 times in a row"):
        run(*command.split(), *COMMANDS[command][2])
    assert len(tried) == 2 * base.TRIES


def test_each_command_over_apps_is_here() -> None:
    """What asks the installed apps is in the table above, with each verb that they answer."""
    assert {verb for verb, _, _ in COMMANDS.values()} == {"purging", "erase", "reseal"}
    assert issubclass(Housekeeping, AppExtension)
