"""`manage.py idempotency_record`: what it shows of a record in any store, and what it does to
one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.utils.connection import ConnectionDoesNotExist
from pytest_django import Settings

from django_idempotency.contrib.steps.durable import Execution
from django_idempotency.core import conclusions
from django_idempotency.core.hashing import derived_key, next_operation, record_id, secret_id
from django_idempotency.core.interventions import Intervention, expired_now, released
from django_idempotency.core.records import MISSING, Outcome, Settlement, Status, Ticket
from django_idempotency.errors import (
    ConfigurationError,
    LostRace,
    OutcomeUnknown,
    RecordUnreadable,
    StoreUnavailable,
)
from django_idempotency.inspection.failures import reason
from django_idempotency.inspection.terminal import plain, span
from django_idempotency.management import arguments
from django_idempotency.management.output import operator
from django_idempotency.runtime.registry import stores
from django_idempotency.scopes import hashed, qualified
from django_idempotency.stores.base import BaseStore, innermost
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket

from ..stores.conftest import dynamodb  # noqa: F401 - a fixture
from ..stores.dynamodb.server import make_table, session
from ..stores.helpers import atomic_ticket, elsewhere
from ..support.services import REDIS, needs_redis

STORE = "django_idempotency.stores"
SCOPE, KEY = "user:auth.user:7", "order-42"
ANSWER = b'{"id": 7, "amount": 24.90, "client_secret": "s3cret", "card": "4242 4242 4242 4242"}'
JSON = (("Content-Type", "application/json"), ("X-Api-Token", "hidden"))


def run(*options: str, alias: str = "default", scope: str = SCOPE, key: str | None = KEY) -> str:
    out = StringIO()
    named = [scope] if key is None else [scope, key]
    call_command("idempotency_record", *named, "--store", alias, *options, stdout=out)
    return out.getvalue()


def fact(shown: str, name: str) -> str:
    """Return the store behind a name."""
    (line,) = [line for line in shown.splitlines() if line.startswith(f"{name:<14}")]
    return line[14:]


def claim(store: BaseStore, **fields: Any) -> Ticket:
    ticket = make_ticket(**{"scope": SCOPE, "key": KEY, **fields})
    store.claim(ticket)
    return ticket


def complete(store: BaseStore, outcome: Outcome | None = None, **fields: Any) -> Ticket:
    ticket = claim(store, **fields)
    outcome = outcome or Outcome(status=201, headers=JSON, body=ANSWER)
    settled = Settlement(
        status=Status.COMPLETED,
        fence=ticket.owner,
        attempt=1,
        digest=ticket.digest,
        operation=ticket.owner,
        outcome=outcome,
    )
    assert store.settle(ticket, settled)
    return ticket


@pytest.fixture
def memory(settings: Settings) -> BaseStore:
    """A store in this process; "other" is a second one."""
    settings.IDEMPOTENCY = {
        "STORES": {
            "default": {"BACKEND": f"{STORE}.memory.MemoryStore"},
            "other": {"BACKEND": f"{STORE}.memory.MemoryStore"},
        }
    }
    return stores["default"]


@pytest.fixture(
    params=[
        "orm",
        "memory",
        "dynamodb",
        pytest.param("redis", marks=needs_redis),
        "layered",
        "cached",
    ]
)
def store(request: pytest.FixtureRequest, settings: Settings, db: None) -> Iterator[BaseStore]:
    """Each store in turn, as "default"."""
    prefix = f"test-{uuid4()}"
    redis = {
        "BACKEND": f"{STORE}.redis.RedisStore",
        "OPTIONS": {"cache": "redis", "prefix": prefix, "timeout": 5},
    }
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS},
    }
    entries: dict[str, Any] = {
        "orm": {"BACKEND": f"{STORE}.orm.ORMStore"},
        "memory": {"BACKEND": f"{STORE}.memory.MemoryStore"},
        "redis": redis,
        "layered": {
            "BACKEND": f"{STORE}.layered.LayeredStore",
            "OPTIONS": {"front": "front", "authority": "orm"},
        },
        "cached": {"BACKEND": f"{STORE}.orm.ORMStore", "OPTIONS": {"local_cache": True}},
    }
    if request.param == "dynamodb":
        options = {"table": prefix, "session": session(), "timeout": 5}
        options["endpoint_url"] = request.getfixturevalue("dynamodb")
        entries["dynamodb"] = {"BACKEND": f"{STORE}.dynamodb.DynamoDBStore", "OPTIONS": options}
    settings.IDEMPOTENCY = {
        "STORES": {
            "default": entries[request.param],
            **({"front": redis, "orm": entries["orm"]} if request.param == "layered" else {}),
        }
    }
    store = stores["default"]
    if request.param == "dynamodb":
        make_table(store)  # type: ignore[arg-type]
    yield store
    # Leaves no copy behind.
    store.change(make_ticket(scope=SCOPE, key=KEY).id, released, audit=lambda _: None)
    if request.param == "dynamodb":
        store.client.boto.close()  # type: ignore[attr-defined]


class TestEveryStore:
    def test_a_finished_record(self, store: BaseStore) -> None:
        """The command shows the record, what a request would get, and the response with its secrets
        masked.
        """
        ticket = complete(store)
        shown = run()
        assert fact(shown, "status").startswith("completed. Done")
        assert "the response below again" in fact(shown, "a request now")
        facts = {
            name: fact(shown, name)
            for name in ("scope", "key", "request", "guarantee", "digest", "attempt", "id")
        }
        assert facts == {
            "scope": SCOPE,
            "key": KEY,
            "request": "POST /api/charges/",
            "guarantee": "lease",
            "digest": ticket.digest.hex(),
            "attempt": "1",
            "id": str(ticket.id),
        }
        assert " s ago" in fact(shown, "completed")
        assert fact(shown, "leased until") == "-"
        assert type(innermost(store)).__name__ in fact(shown, "store")
        assert fact(shown, "response") == "201"
        assert '  "amount": 24.90,\n' in shown
        assert "…4242" in shown
        assert not any(secret in shown for secret in ("s3cret", "hidden", "4242 4242"))

    def test_a_running_record(self, store: BaseStore) -> None:
        """No verb touches a running record: exit status 1, and the time when its lease ends."""
        ticket = claim(store)
        shown = run()
        assert fact(shown, "status").startswith("running. ")
        assert "409 in-progress" in fact(shown, "a request now")
        assert fact(shown, "owner") == str(ticket.owner)
        assert "in " in fact(shown, "leased until")
        assert (fact(shown, "completed"), fact(shown, "response")) == ("-", "none")
        for verb in ("--release", "--expire", "--erase"):
            with pytest.raises(
                CommandError, match=r"holds the record.*lease ends in (2[0-9]|30) s"
            ) as raised:
                run(verb)
            assert raised.value.returncode == 1
        assert run().startswith(shown[:40])

    def test_release_and_expire(self, store: BaseStore, caplog: pytest.LogCaptureFixture) -> None:
        """Each verb reports what it did, what the next request gets, and who did it; a repetition
        changes nothing.
        """
        complete(store)
        out = run("--release")
        assert out.startswith("Released. It was completed, attempt 1, POST /api/charges/.\n")
        assert "now runs the work as attempt 2; a different body under the key gets 422." in out
        assert run("--release").startswith(
            "There is nothing to release: it is failed. Nothing was changed.\n"
        )
        assert fact(run(), "status").startswith("failed. ")
        assert run("--expire").startswith("Expired. It was failed, attempt 1")
        assert run("--expire").startswith("It is expired already. Nothing was changed.\n")
        shown = run()
        assert fact(shown, "status").startswith("expired. ")
        assert ("The store deletes" if store.expires_natively else "A purge") in fact(
            shown, "a request now"
        )
        written = [record for record in caplog.records if record.name == "django_idempotency"]
        assert [record.getMessage().partition(",")[0] for record in written] == [
            "Released by hand",
            "Expired by hand",
        ]

    def test_called_from_code(self, store: BaseStore) -> None:
        """Options may be given as `call_command()` takes them, by their names."""
        ticket, out = complete(store), StringIO()
        call_command("idempotency_record", ticket.scope, ticket.key, release=True, stdout=out)
        assert out.getvalue().startswith("Released. It was completed")
        with pytest.raises(CommandError, match="Choose one"):
            call_command("idempotency_record", ticket.scope, ticket.key, release=True, erase=True)

    def test_erase(self, store: BaseStore, caplog: pytest.LogCaptureFixture) -> None:
        """Nothing of the response is left; a sleeping record can be erased if its execution is
        named.
        """
        ticket = complete(store)
        assert run("--erase").startswith(
            "Erased. It was completed, attempt 1, POST /api/charges/.\n"
        )
        assert (left := store.get(ticket.id)) is None or left.outcome is None
        record = store.get(claim(store).id)
        assert record is not None
        asleep = Execution("order-17").suspending_ticket(record, record.ticket(owner=record.owner))
        assert store.settle(asleep, conclusions.handover(record, asleep))
        with pytest.raises(CommandError, match="Refused"):
            run("--erase")
        assert run("--erase", "--execution", "order-17").startswith(
            "Erased. It was running, attempt 1"
        )
        written = [record for record in caplog.records if record.name == "django_idempotency"]
        assert [record.getMessage().partition(",")[0] for record in written] == [
            "Erased by hand"
        ] * 2

    def test_a_suspended_record(self, store: BaseStore, caplog: pytest.LogCaptureFixture) -> None:
        """Naming its execution confirms that nothing will resume it; without the name it is leased,
        and refused.
        """
        owner = claim(store)
        record = store.get(owner.id)
        assert record is not None
        asleep = Execution("order-17").suspending_ticket(record, owner)
        assert store.settle(asleep, conclusions.handover(record, asleep))
        assert "It is suspended by the durable execution order-17." in run(
            "--execution", "order-17"
        )
        assert "It is not suspended by the durable execution order-18." in run(
            "--execution", "order-18"
        )
        for others in ([], ["--execution", "order-18"]):
            with pytest.raises(CommandError, match="Refused"):
                run("--release", *others)
        assert run("--release", "--execution", "order-17").startswith(
            "Released. It was running, attempt 1, POST"
        )
        assert run("--release", "--execution", "order-17").startswith(
            "There is nothing to release: it is failed."
        )
        written = [record for record in caplog.records if record.name == "django_idempotency"]
        assert [record.getMessage().partition(",")[0] for record in written] == ["Released by hand"]

    def test_there_is_none(self, store: BaseStore) -> None:
        """Every verb says alike what may have been meant."""
        for verb in ([], ["--release"], ["--expire"], ["--erase"]):
            with pytest.raises(CommandError) as raised:
                run(*verb, key="nope")
            assert raised.value.returncode == 1
            if "MemoryStore" not in str(raised.value):
                assert f"no record of the scope '{SCOPE}' and the key 'nope'" in str(raised.value)
                assert "user:<app.model>:<pk>  of a user, such as user:auth.user:7" in str(
                    raised.value
                )
                assert "exact" in str(raised.value)


@needs_redis
@pytest.mark.parametrize("store", ["layered"], indirect=True)
def test_a_release_leaves_no_copy(store: Any) -> None:
    """The command goes through every layer in front of the records, whichever alias is named."""
    ticket = complete(store)
    store.front.put(store.get(ticket.id), seconds=60)
    assert store.front.peek(ticket.id) is not None
    run("--release", alias="orm")
    assert store.front.peek(ticket.id) is None


class TestShowing:
    def test_the_chosen_store(self, settings: Settings, memory: BaseStore) -> None:
        """The command uses the store of IDEMPOTENCY["STORE"], unless another is named."""
        settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "STORE": "other"}
        complete(stores["other"])
        out = StringIO()
        call_command("idempotency_record", SCOPE, KEY, stdout=out)
        assert fact(out.getvalue(), "store") == "other (MemoryStore)"

    @pytest.mark.parametrize(
        ("content_type", "body", "words"),
        [
            ("application/pdf", b"\x00" * 1200, "1,200 bytes, not text"),
            ("image/png", b"\x89", "1 byte, an image"),
            ("text/plain", b"", "empty"),
            ("text/plain", MISSING, "not stored"),
        ],
    )
    def test_other_bodies(
        self, memory: BaseStore, content_type: str, body: Any, words: str
    ) -> None:
        """Such bodies show their size, or why there is none."""
        complete(memory, Outcome(status=200, headers=(("Content-Type", content_type),), body=body))
        assert fact(run(), "body").startswith(words)

    def test_no_body(self, memory: BaseStore) -> None:
        """The option is for a terminal that others can see."""
        complete(memory)
        shown = run("--no-body")
        assert fact(shown, "body") == f"{len(ANSWER)} bytes, left out"
        assert "24.90" not in shown

    def test_the_key_of_a_provider(self, settings: Settings, memory: BaseStore) -> None:
        """The output is exactly what `derive()` returned, even after a change of the secret."""
        ticket = complete(memory, secret_id=secret_id(settings.SECRET_KEY))
        record = memory.get(ticket.id)
        assert record
        key = run("--derive", "stripe").strip()
        assert key == derived_key(
            settings.SECRET_KEY,
            "stripe",
            scope=SCOPE,
            key=KEY,
            operation=record.operation,
            request=ticket.digest,
        )
        settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another"
        assert run("--derive", "stripe").strip() == key
        settings.SECRET_KEY_FALLBACKS = []
        with pytest.raises(CommandError, match="DERIVE_SECRET_FALLBACKS"):
            run("--derive", "stripe")

    def test_the_keys_of_an_expired_record(
        self, settings: Settings, memory: BaseStore, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """In `atomic` a new life that crashed has left the record of the old one: its key is named,
        too.
        """
        ticket = complete(memory, secret_id=secret_id(settings.SECRET_KEY))
        assert memory.change(ticket.id, expired_now, audit=lambda _: None) is Intervention.DONE
        record = memory.get(ticket.id)
        assert record
        old, new = (
            derived_key(
                settings.SECRET_KEY,
                "stripe",
                scope=SCOPE,
                key=KEY,
                operation=operation,
                request=ticket.digest,
            )
            for operation in (record.operation, next_operation(record.operation))
        )
        assert run("--derive", "stripe").strip() == old
        assert new in capsys.readouterr().err

    def test_no_key_of_a_provider(self, memory: BaseStore) -> None:
        """Without a record, or with one that is free for any body, there is no key to print."""
        with pytest.raises(CommandError, match="MemoryStore"):
            run("--derive", "stripe")
        ticket = claim(memory)
        refused = Settlement(
            status=Status.FREE,
            fence=ticket.owner,
            attempt=1,
            digest=b"",
            operation=ticket.owner,
            outcome=None,
        )
        assert memory.settle(ticket, refused)
        with pytest.raises(CommandError, match="free for another body"):
            run("--derive", "stripe")

    def test_a_long_text_is_cut(self, memory: BaseStore) -> None:
        complete(
            memory,
            Outcome(status=200, headers=(("Content-Type", "text/plain"),), body=b"x" * 200_000),
        )
        assert run().endswith("x\n… cut here.\n")

    def test_an_expired_answer(self, memory: BaseStore) -> None:
        complete(memory, ttl=-1)
        assert fact(run(), "response") == "201, no longer sent"

    def test_nothing_stored_reaches_the_terminal_raw(self, memory: BaseStore) -> None:
        """No escape sequence reaches the terminal from any field."""
        evil = "a\x1b[2J\r\x9b1m\u202e"
        headers = (("Content-Type", "text/plain"), (evil, evil))
        complete(
            memory,
            Outcome(status=200, headers=headers, body=f"one\n{evil}\ntwo".encode()),
            path=f"/{evil}",
        )
        shown = run()
        assert not any(char in shown for char in evil[1:2] + "\r\x9b\u202e")
        assert r"a\x1b[2J\r\x9b1m\u202e" in shown
        assert "\\x1b" in run("--release")

    def test_a_long_scope(self, memory: BaseStore) -> None:
        """A long scope may be typed as it is, or as it is stored."""
        scope = "scope:" + "x" * 300
        complete(memory, scope=qualified(scope))
        assert fact(run(scope=scope), "id") == fact(run(scope=qualified(scope)), "id")

    @pytest.mark.parametrize("verb", [None, "--expire"])
    def test_a_scope_that_is_stored_as_its_hash(self, memory: BaseStore, verb: str | None) -> None:
        """The scope is typed by its name. A scope stored under that very name goes first."""
        complete(memory, scope=hashed("scope:acme"))
        given = [verb] if verb else []
        assert run(*given, scope="scope:acme")
        complete(memory, scope="scope:acme")
        assert run("--release", scope="scope:acme").startswith("Released")
        kept = memory.get(record_id(hashed("scope:acme"), KEY))
        assert kept is not None
        assert kept.status is Status.COMPLETED

    @pytest.mark.parametrize(
        ("realm", "typed"), [("acme", "realm:acme/"), ("münchen", "realm:münchen/"), ("a/b", None)]
    )
    def test_a_scope_in_a_realm(self, memory: BaseStore, realm: str, typed: str | None) -> None:
        """A scope may be typed with its realm, or beside it; without the realm it is another
        scope.
        """
        complete(memory, scope=qualified("user:auth.user:7", realm=realm))
        with pytest.raises(CommandError):
            run(scope="user:auth.user:7")
        shown = run("--realm", realm, scope="user:auth.user:7")
        if typed is not None:
            assert fact(run(scope=f"{typed}user:auth.user:7"), "id") == fact(shown, "id")

    @pytest.mark.parametrize(
        ("seconds", "words"),
        [
            *[
                (0, "0.0 s"),
                (9.94, "9.9 s"),
                (59, "59 s"),
                (60, "1 min"),
                (61, "1 min 1 s"),
                (3600, "1 h"),
            ],
            *[
                (3660, "1 h 1 min"),
                (3601, "1 h"),
                (86_399.7, "1 d"),
                (90_000, "1 d 1 h"),
                (8_640_000, "100 d"),
            ],
        ],
    )
    def test_spans(self, seconds: float, words: str) -> None:
        assert span(timedelta(seconds=seconds)) == words

    def test_plain(self) -> None:
        assert plain("é\t€ 😀\x07\x85\ud800") == "é\t€ 😀\\x07\\x85\\ud800"


class TestAudit:
    def test_who_and_what(
        self, memory: BaseStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The log names the system user and the one behind sudo, and shortens the key."""
        monkeypatch.setenv("LOGNAME", "root")
        monkeypatch.setenv("SUDO_USER", "ada")
        ticket = complete(memory)
        run("--release")
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("django_idempotency", logging.WARNING)
        said: Any = record
        assert said.idempotency == {
            "event": "released_by_hand",
            "sure": True,
            "user": "root (sudo by ada)",
            "store": "default",
            "id": str(ticket.id),
            "key": "orde…",
            "scope": SCOPE,
            "method": "POST",
            "path": "/api/charges/",
            "status": "completed",
            "attempt": 1,
        }
        assert "root (sudo by ada)" in record.getMessage()
        assert KEY not in record.getMessage()

    def test_the_path_is_masked(self, memory: BaseStore) -> None:
        complete(memory, path="/cards/4242424242424242/")
        assert "/cards/[redacted …4242]/" in run("--release")

    def test_a_user_without_a_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Containers have users without a name."""

        def unnamed() -> str:
            raise OSError("No username set in the environment")

        monkeypatch.setattr("getpass.getuser", unnamed)
        monkeypatch.delenv("SUDO_USER", raising=False)
        assert operator().startswith("uid ")

    @pytest.mark.parametrize("ended", [Intervention.BUSY, Intervention.ALREADY, Intervention.GONE])
    def test_only_what_was_done(
        self,
        memory: Any,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        ended: Intervention,
    ) -> None:
        monkeypatch.setattr(type(memory), "change", lambda *_, **__: ended)
        complete(memory)
        try:
            run("--release")
        except CommandError as error:
            assert error.returncode == 1  # noqa: PT017 - two of the three
            assert ended is not Intervention.ALREADY
        assert caplog.records == []


class TestFailures:
    def test_a_key_of_no_encoding(self, memory: BaseStore) -> None:
        """A shell may pass bytes that are not UTF-8."""
        with pytest.raises(CommandError, match="not UTF-8"):
            run(key="caf\udce9")

    def test_an_unknown_store(self, memory: BaseStore) -> None:
        with pytest.raises(CommandError, match=r"has no 'nope'\. It has 'default', 'other'"):
            run(alias="nope")

    def test_other_stores_are_named(self, settings: Settings) -> None:
        """The record may be in one of them."""
        settings.IDEMPOTENCY = {
            "STORES": {
                "default": {"BACKEND": "tests.management.test_idempotency_record.Empty"},
                "b": {},
                "c": {},
            }
        }
        with pytest.raises(CommandError, match="another store: type --store and one of b, c"):
            run()

    @pytest.mark.parametrize("verb", [[], ["--release"], ["--expire"]])
    def test_redis_is_away(self, settings: Settings, verb: list[str]) -> None:
        """The error has the driver's own words."""
        settings.CACHES = {
            "default": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": "redis://127.0.0.1:1/0",
            }
        }
        settings.IDEMPOTENCY = {"STORES": {"default": {"BACKEND": f"{STORE}.redis.RedisStore"}}}
        with pytest.raises(
            CommandError, match=r"The store 'default' did not respond: .*127\.0\.0\.1:1"
        ):
            run(*verb)

    # The fixture.
    def test_a_missing_table(self, settings: Settings, dynamodb: str) -> None:  # noqa: F811
        """The error has the store's own words, and the driver's behind them."""
        options = {
            "table": f"test-{uuid4()}",
            "endpoint_url": dynamodb,
            "session": session(),
            "timeout": 5,
        }
        settings.IDEMPOTENCY = {
            "STORES": {
                "default": {"BACKEND": f"{STORE}.dynamodb.DynamoDBStore", "OPTIONS": options}
            }
        }
        with pytest.raises(
            CommandError, match=r"Type: manage\.py idempotency_stores create \(.*ResourceNotFound"
        ):
            run()
        store: Any = stores["default"]
        store.client.boto.close()

    # The second may be stored as its hash, so both are looked up.
    @pytest.mark.parametrize("scope", [SCOPE, "scope:acme"])
    def test_a_damaged_record(
        self, memory: BaseStore, monkeypatch: pytest.MonkeyPatch, scope: str
    ) -> None:
        """The error names it."""

        def damaged(*_: Any) -> None:
            raise RecordUnreadable

        monkeypatch.setattr(type(memory), "get", damaged)
        with pytest.raises(CommandError, match=f"The record {record_id(scope, KEY)} .*is damaged"):
            run(scope=scope)

    def test_others_were_faster(self, memory: BaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
        def lost(*_: Any, **__: Any) -> None:
            raise LostRace

        monkeypatch.setattr(type(memory), "change", lost)
        with pytest.raises(
            CommandError, match="Another process changed the record first, and nothing was done"
        ):
            run("--release")

    def test_silence_after_it_was_done(
        self, memory: BaseStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The verb was carried out: exit status 0."""
        complete(memory)
        looks = iter([memory.get(make_ticket(scope=SCOPE, key=KEY).id), StoreUnavailable()])

        def look(*_: Any) -> Any:
            found = next(looks)
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(type(memory), "get", look)
        assert run("--release").splitlines() == [
            "Released. It was completed, attempt 1, POST /api/charges/."
        ]

    @pytest.mark.parametrize("error", [StoreUnavailable, OutcomeUnknown])
    def test_silence_as_it_is_done(
        self,
        memory: BaseStore,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        error: type[Exception],
    ) -> None:
        """The outcome is unknown: the command says so, and the log names the operator."""
        ticket = complete(memory)
        release = memory.change

        def release_and_fall_silent(*arguments: Any, **options: Any) -> None:
            release(*arguments, **options)
            raise error from ConnectionResetError("reset by peer")

        monkeypatch.setattr(memory, "change", release_and_fall_silent)
        with pytest.raises(
            CommandError,
            match=r"did not respond: .*reset by peer\nIt is unknown whether it was released. "
            r"Type the command",
        ):
            run("--release")
        (record,) = caplog.records
        assert record.getMessage().startswith(
            "Released by hand, perhaps: the store did not respond, by "
        )
        facts: dict[str, Any] = vars(record)["idempotency"]
        assert (facts["event"], facts["sure"], facts["id"]) == (
            "released_by_hand",
            False,
            str(ticket.id),
        )
        monkeypatch.undo()
        assert run("--release").startswith("There is nothing to release: it is failed.")

    @pytest.mark.parametrize(
        ("raised", "said"),
        [
            (ConfigurationError("It is another kind of table."), "another kind of table"),
            (
                ModuleNotFoundError("No module named 'django_redis'"),
                "No module named 'django_redis'",
            ),
            (ImproperlyConfigured("It cannot be built."), "cannot be built"),
            (
                ConnectionDoesNotExist("The connection 'nope' doesn't exist."),
                "'nope' doesn't exist",
            ),
        ],
    )
    def test_misconfigured(
        self, memory: Any, monkeypatch: pytest.MonkeyPatch, raised: Exception, said: str
    ) -> None:
        """The error says what is wrong, and what to type."""

        def look(*_: Any) -> None:
            raise raised

        monkeypatch.setattr(type(memory), "get", look)
        for verb in ([], ["--release"]):
            with pytest.raises(
                CommandError, match=rf"'default' cannot be used: .*{said}.*\nType: manage\.py check"
            ):
                run(*verb)

    def test_a_missing_cache(self, settings: Settings) -> None:
        options = {"cache": "nope"}
        settings.IDEMPOTENCY = {
            "STORES": {"default": {"BACKEND": f"{STORE}.redis.RedisStore", "OPTIONS": options}}
        }
        with pytest.raises(
            CommandError, match=r"The connection 'nope' doesn't exist\.\nType: manage\.py check"
        ):
            run()

    def test_reasons(self) -> None:
        unknown, silent = StoreUnavailable(), StoreUnavailable()
        silent.__cause__ = TimeoutError()
        assert (reason(unknown), reason(silent)) == ("the cause is unknown", "TimeoutError")
        assert reason(StoreUnavailable("Only 0 of 1 replicas.")) == "Only 0 of 1 replicas."

    def test_both_verbs(self, memory: BaseStore) -> None:
        with pytest.raises(CommandError, match="not allowed with"):
            run("--release", "--expire")


class Empty(BaseStore):
    """A store without records."""

    claim = settle = renew = purge = None  # type: ignore[assignment]

    def get(self, record_id: Any) -> None:
        return None


@pytest.mark.django_db(transaction=True)
def test_a_living_owner_of_an_atomic_record() -> None:
    """Its lease is over but its transaction is not: refused."""
    ticket = atomic_ticket(scope=SCOPE, key=KEY, lease=0)
    ORMStore().claim(ticket)
    with ORMStore().guard(ticket) as guard:
        assert guard.record is not None
        with pytest.raises(CommandError, match="holds the record"):
            elsewhere(lambda: run("--release"))
        guard.set_rollback()
    assert "if it is abandoned, runs as attempt 2" in fact(run(), "a request now")


def test_by_the_key_hash_of_a_log_line(store: BaseStore) -> None:
    """The beginning of an id, as a log line has it, is enough to show and to change a record, in
    any store.
    """
    ticket, _ = complete(store), complete(store, key="order-43")
    for typed in (ticket.id.hex[:12], ticket.id.hex[:20], str(ticket.id)[:18], str(ticket.id)):
        assert fact(run(scope=typed, key=None), "key") == KEY
    assert "Erased." in run("--erase", scope=ticket.id.hex[:12], key=None)
    with pytest.raises(CommandError, match="No record has an id that begins with 000000000000"):
        run(scope="000000000000", key=None)
    with pytest.raises(CommandError, match="Type one, or a key_hash of the log"):
        run(scope=ticket.id.hex[:11], key=None)


def test_two_records_with_one_beginning(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A beginning that names two records is refused, with their ids."""
    first, second = complete(stores["default"]), complete(stores["default"], key="order-43")
    monkeypatch.setattr(arguments, "_begun", lambda store, digits: [first.id, second.id])
    with pytest.raises(CommandError, match=f"{first.id}, {second.id}. Type one of them"):
        run(scope=first.id.hex[:12], key=None)
