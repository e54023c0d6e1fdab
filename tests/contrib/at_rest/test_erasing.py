"""`idempotency_erase`: what is stored about a person goes from every store, and their keys never
run again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from pytest_django import Settings

from django_idempotency.contrib import outbox
from django_idempotency.contrib.at_rest.hashed import HashedStore
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.core.at_rest import ERASED
from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.records import Outcome
from django_idempotency.errors import StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.layered import LayeredStore
from django_idempotency.stores.layered.caches import LocalCache
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.contract.base import Contract
from django_idempotency.testing.tickets import make_ticket
from tests.entry_points.conftest import Connect, connect, effects  # noqa: F401 - a fixture

MINE, THEIRS = "user:auth.user:42", "user:auth.user:4"
OUTCOME = Outcome(201, (), b"secret")


def erase(*args: str, **options: Any) -> str:
    out = StringIO()
    call_command(
        "idempotency_erase", *args, stdout=out, stderr=StringIO(), **{"asks": False, **options}
    )
    return out.getvalue()


def complete(store: Any, scope: str, key: str = "key-1") -> None:
    assert Contract().leave(
        store, make_ticket(scope=scope, key=key), SettledState.COMPLETED, OUTCOME
    )


@pytest.fixture
def inner() -> Iterator[MemoryStore]:
    with stores.replaced("default", inner := MemoryStore()):
        for scope in (MINE, THEIRS, f"mode:observe/{MINE}", f"realm:acme/{MINE}"):
            complete(inner, scope)
        yield inner


def scopes(store: MemoryStore) -> list[str]:
    return sorted(record.scope for record in store._records.values())


@pytest.mark.any_database
@pytest.mark.django_db
@pytest.mark.parametrize("typed", [MINE, "user:42"])
def test_the_scope_and_no_other(
    inner: MemoryStore, typed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By either spelling, with what was only observed; another realm is named and left.

    Nobody's name is logged.
    """
    said = erase("--scope", typed)
    assert "2 of 4 records erased" in said
    assert f"1 more belong to realm:acme/{MINE}" in said
    assert scopes(inner) == [ERASED, ERASED, f"realm:acme/{MINE}", THEIRS]
    (logged,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert logged.idempotency["erased"] == 2  # type: ignore[attr-defined]
    assert MINE not in logged.getMessage()


@pytest.mark.any_database
@pytest.mark.django_db
def test_a_realm(inner: MemoryStore) -> None:
    """With --realm, or before the scope."""
    assert "1 of 4 records erased" in erase("--scope", "user:42", "--realm", "acme")
    assert "0 of 4 records erased" in erase("--scope", "realm:acme/user:42")


@pytest.mark.any_database
@pytest.mark.django_db
def test_a_dry_run(inner: MemoryStore) -> None:
    """It counts, asks nothing and changes nothing."""
    assert "2 of 4 records would be erased" in erase("--scope", MINE, "--dry-run", asks=True)
    assert ERASED not in scopes(inner)


@pytest.mark.any_database
@pytest.mark.django_db
def test_confirmation(inner: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --no-input it asks, and where nobody can be asked it does nothing."""
    with pytest.raises(CommandError, match="Type --no-input"):
        erase("--scope", MINE, asks=True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, erased in (("no", False), ("yes", True)):
        monkeypatch.setattr("builtins.input", lambda prompt, answer=answer: answer)
        if erased:
            erase("--scope", MINE, asks=True)
        else:
            with pytest.raises(CommandError, match="Nothing was erased"):
                erase("--scope", MINE, asks=True)
        assert (ERASED in scopes(inner)) == erased


@pytest.mark.any_database
@pytest.mark.django_db
def test_running_records(inner: MemoryStore) -> None:
    """They are left and reported, and the exit status is 1."""
    inner.claim(make_ticket(scope=MINE, key="running"))
    with pytest.raises(CommandError, match="1 left"):
        erase("--scope", MINE)
    assert scopes(inner) == [ERASED, ERASED, f"realm:acme/{MINE}", THEIRS, MINE]


@pytest.mark.any_database
@pytest.mark.django_db
def test_fronts() -> None:
    """The copy goes as well, whichever alias was named."""
    front = LocalCache()
    store = LayeredStore(front=front, authority=MemoryStore())
    with stores.replaced("default", store):
        complete(store, MINE)
        assert len(front) == 1
        erase("--scope", MINE)
    assert len(front) == 0


@pytest.mark.any_database
@pytest.mark.django_db
def test_every_store(settings: Settings) -> None:
    """Each set of records once; --store names one."""
    memory = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}
    layered = {
        "BACKEND": "django_idempotency.stores.layered.LayeredStore",
        "OPTIONS": {"front": LocalCache(), "authority": "default"},
    }
    settings.IDEMPOTENCY = {"STORES": {"default": memory, "other": memory, "layered": layered}}
    for alias in ("default", "other"):
        complete(stores[alias], MINE)
    assert "'other': 1 of 1 records would be erased" in erase(
        "--scope", MINE, "--dry-run", "--store", "other"
    )
    said = erase("--scope", MINE)
    assert said.count("1 of 1 records erased") == said.count("The store") == 2


@pytest.mark.any_database
@pytest.mark.django_db
def test_a_store_that_is_down(inner: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of the command."""

    def down(**_: Any) -> Any:
        raise StoreUnavailable

    monkeypatch.setattr(inner, "scan", down)
    with pytest.raises(CommandError, match="did not respond"):
        erase("--scope", MINE)


@pytest.mark.any_database
@pytest.mark.django_db
def test_nothing_named() -> None:
    with pytest.raises(CommandError, match="Type --scope"):
        erase()


@pytest.mark.django_db(transaction=True)
def test_a_retry_of_an_erased_key(user: User, connect: Connect) -> None:  # noqa: F811
    """No column names the user any more, the retry is refused, and the charge is not made again."""
    send = connect("/api/charges/", user)
    assert send().status_code == 201
    erase("--scope", f"user:{user.pk}")
    (row,) = IdempotencyRecord.objects.all()
    assert (row.scope, row.key, row.path, row.request_id, bytes(row.digest or b"")) == (
        ERASED,
        ERASED,
        "",
        "",
        b"",
    )
    assert row.response_body is None
    for body in (None, {"amount": 1, "currency": "inr"}):
        refused = send(body)
        assert (refused.status_code, refused.json()["code"]) == (409, "response-not-stored")
    assert effects() == 1


@pytest.mark.django_db(transaction=True)
def test_messages() -> None:
    """Waiting messages of a key are deleted, of this key exactly; one that a relay holds is
    reported.
    """
    with transaction.atomic():
        for key in ("user-42", "user-42", "USER-42", ""):
            outbox.send("mail", {"to": "secret"}, key=key)
    assert "2 waiting messages would be erased" in erase("--outbox-key", "user-42", "--dry-run")
    assert "2 waiting messages erased" in erase("--outbox-key", "user-42")
    assert sorted(Message.objects.values_list("key", flat=True)) == ["", "USER-42"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.either_server
def test_a_message_that_a_relay_holds() -> None:
    """It is left, since it may be published in this moment."""
    if not connections["default"].features.has_select_for_update_skip_locked:
        pytest.skip("relays lock everything here")
    with transaction.atomic():
        outbox.send("mail", {}, key=(key := uuid4().hex))
    relay = connections.create_connection("default")
    try:
        relay.set_autocommit(False)
        with relay.cursor() as cursor:
            cursor.execute("SELECT id FROM django_idempotency_message FOR UPDATE")
        with pytest.raises(CommandError, match="1 left"):
            erase("--outbox-key", key)
        relay.rollback()
    finally:
        relay.close()
    assert "1 waiting messages erased" in erase("--outbox-key", key)


@pytest.mark.any_database
@pytest.mark.django_db
def test_hashed_scopes(settings: Settings) -> None:
    """Also those that an earlier secret has hashed."""
    settings.SECRET_KEY_FALLBACKS = ["earlier"]
    inner = MemoryStore()
    complete(HashedStore(inner, lambda: "earlier"), MINE)
    complete(HashedStore(inner, lambda: settings.SECRET_KEY), MINE, "key-2")
    complete(HashedStore(inner, lambda: settings.SECRET_KEY), THEIRS)
    with stores.replaced("default", inner):
        assert "2 of 3 records erased" in erase("--scope", "user:42")
