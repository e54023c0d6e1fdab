"""The commands that read, purge, erase and reseal the trail."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import Settings
from rest_framework.test import APIClient

from django_idempotency import current_operation, idempotent_function
from django_idempotency.contrib.audit.models import AuditEvent, Reference
from django_idempotency.contrib.audit.rows import referring_to
from django_idempotency.core.at_rest import ERASED, HASHED
from django_idempotency.models import IdempotencyRecord
from tests.contrib.at_rest.sealed.keys import FIRST, SECOND

from .helpers import committed, events, post, references

pytestmark = committed


def run(name: str, *arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command(name, *arguments, stdout=out, stderr=StringIO(), **options)
    return out.getvalue()


@idempotent_function(key_prefix="commands", data_keyword_argument="order")
def pay(*, order: int) -> int:
    operation = current_operation()
    assert operation is not None
    operation.refer("payment", order)
    return order


def everything() -> str:
    """Return all that both tables hold."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM django_idempotency_audit_event ORDER BY id")
        found = repr(cursor.fetchall())
        cursor.execute("SELECT * FROM django_idempotency_audit_reference ORDER BY id")
        return found + repr(cursor.fetchall())


class TestReading:
    def test_history(self, api: APIClient, user: Any) -> None:
        """It is there when the record is gone."""
        post(api)
        post(api)
        IdempotencyRecord.objects.all().delete()
        scope = f"user:auth.user:{user.pk}"
        lines = run("idempotency_record", "--history", scope, "k-1").splitlines()
        assert [line.split("  ")[1] for line in lines] == ["claimed", "completed", "replayed"]
        assert f"201, attempt 1, auth.user:{user.pk}, POST api/charges/$, req-k-1" in lines[1]
        found = run("idempotency_record", "--history", scope, "k-1", "--format=json").splitlines()
        assert [json.loads(line)["event"] for line in found] == ["claimed", "completed", "replayed"]
        with pytest.raises(CommandError, match="nothing of this key"):
            run("idempotency_record", "--history", scope, "k-2")

    def test_references(self) -> None:
        pay(order=17)
        (line,) = run("idempotency_record", "--reference", "payment:17").splitlines()
        assert line.startswith(pay.idempotency.scope)
        (found,) = run(
            "idempotency_record", "--reference", "payment:17", "--format", "json"
        ).splitlines()
        assert json.loads(found)["key"] == pay.idempotency.key_for(order=17)
        history = run(
            "idempotency_record",
            "--history",
            pay.idempotency.scope,
            pay.idempotency.key_for(order=17),
        )
        assert history.splitlines()[-1] == "refers to payment:17"
        for typed, said in (("payment:18", "No key refers"), ("payment", "is no reference")):
            with pytest.raises(CommandError, match=said):
                run("idempotency_record", "--reference", typed)

    def test_by_hand(self) -> None:
        """What an operator did is an event, with the reason."""
        pay(order=17)
        scope, key = pay.idempotency.scope, pay.idempotency.key_for(order=17)
        run("idempotency_record", scope, key, "--release", "--reason", "ticket 4711")
        pay(order=17)
        assert pay.idempotency.forget(order=17)
        assert events() == [
            "claimed",
            "completed",
            "released_by_hand",
            "claimed",
            "completed",
            "forgotten",
        ]
        released = AuditEvent.objects.get(event="released_by_hand")
        assert (released.reason, released.attempt, released.scope) == ("ticket 4711", 1, scope)
        assert released.actor


class TestPurging:
    def test_its_own_retention(self, settings: Settings) -> None:
        """Rows go when AUDIT_RETENTION has passed, in batches, whatever their record does."""
        settings.IDEMPOTENCY = {"AUDIT": True, "AUDIT_RETENTION": timedelta(days=30)}
        pay(order=1)
        pay(order=2)
        for model in (AuditEvent, Reference):
            for old in model.maintenance.order_by("pk")[:1]:
                model.maintenance.filter(pk=old.pk).update(at=old.at - timedelta(days=31))
        assert "2 audit rows would be deleted." in run("purge_idempotency", "--dry-run")
        assert "2 audit rows deleted" in run("purge_idempotency", "--batch-size", "1")
        assert (AuditEvent.objects.count(), references()) == (3, [("payment", "2")])
        assert "audit" not in run("purge_idempotency")
        assert IdempotencyRecord.objects.count() == 2

    def test_a_limit_counts_records_first(self, settings: Settings) -> None:
        settings.IDEMPOTENCY = {"AUDIT": True, "AUDIT_RETENTION": 0.000001}
        pay(order=1)
        assert "2 audit rows deleted" in run("purge_idempotency", "--limit", "2")
        assert AuditEvent.objects.count() + Reference.objects.count() == 1

    def test_for_ever(self, settings: Settings) -> None:
        settings.IDEMPOTENCY = {"AUDIT": True, "AUDIT_RETENTION": None}
        pay(order=1)
        AuditEvent.maintenance.update(at=AuditEvent.objects.all()[0].at - timedelta(days=36500))
        run("purge_idempotency")
        assert AuditEvent.objects.count() == 2


class TestErasing:
    def test_a_trace_without_a_person(self, api: APIClient, user: Any) -> None:
        """Events stay, without whose they are; another client's stay as they are."""
        post(api)
        pay(order=17)
        said = run("idempotency_erase", "--scope", f"user:{user.pk}", asks=False)
        assert "2 audit rows erased" in said
        mine = AuditEvent.objects.exclude(scope=pay.idempotency.scope).order_by("pk")
        assert [(each.event, each.outcome, each.attempt) for each in mine] == [
            ("claimed", "", 1),
            ("completed", "201", 1),
            ("erased", "201", 1),
        ]
        assert {(each.scope, each.key) for each in mine} == {(ERASED, ERASED)}
        assert "req-k-1" not in everything()
        assert f"auth.user:{user.pk}" not in everything()
        assert references() == [("payment", "17")]
        assert AuditEvent.objects.filter(scope=pay.idempotency.scope, actor="commands").count() == 2

    def test_references(self) -> None:
        pay(order=17)
        run("idempotency_erase", "--scope", pay.idempotency.scope, asks=False)
        assert references() == []

    def test_a_dry_run(self) -> None:
        pay(order=17)
        before = everything()
        assert "3 audit rows would be erased" in run(
            "idempotency_erase", "--scope", pay.idempotency.scope, dry_run=True
        )
        assert everything() == before


class TestSealing:
    def use(self, settings: Settings, keys: list[str | None], **more: Any) -> None:
        settings.IDEMPOTENCY = {"AUDIT": True, "ENCRYPTION_KEYS": keys, **more}

    def test_sealed(self, api: APIClient, user: Any, settings: Settings) -> None:
        """Nobody is named in the tables, both directions still find, and a lost key names
        nobody.
        """
        self.use(settings, [FIRST])
        post(api)
        pay(order=4711)
        assert f"auth.user:{user.pk}'" not in everything().replace(
            f"'user:auth.user:{user.pk}'", ""
        )
        assert "req-k-1" not in everything()
        assert "4711" not in everything().replace(pay.idempotency.key_for(order=4711), "")
        assert [found.value for found in referring_to("payment", "4711")] == ["4711"]
        history = ["idempotency_record", "--history", f"user:auth.user:{user.pk}", "k-1"]
        assert f"auth.user:{user.pk}, POST api/charges/$, req-k-1" in run(*history)
        self.use(settings, [SECOND])
        assert "#sealed" in run(*history)

    def test_hashed(self, api: APIClient, user: Any, settings: Settings) -> None:
        """With HASH_KEYS scope and key are hashes here as well, and the timeline is found by
        both.
        """
        self.use(settings, [FIRST], HASH_KEYS=True)
        post(api)
        assert all(
            each.scope.startswith(HASHED) and each.key.startswith(HASHED)
            for each in AuditEvent.objects.all()
        )
        assert "completed" in run(
            "idempotency_record", "--history", f"user:auth.user:{user.pk}", "k-1"
        )
        run("idempotency_erase", "--scope", f"user:{user.pk}", asks=False)
        assert set(AuditEvent.objects.values_list("scope", flat=True)) == {ERASED}

    def test_moved(self, settings: Settings) -> None:
        """A sealed text opens in its own row only."""
        self.use(settings, [FIRST])
        pay(order=1)
        first, second = AuditEvent.objects.order_by("pk")
        AuditEvent.maintenance.filter(pk=second.pk).update(sealed=first.sealed)
        history = run(
            "idempotency_record",
            "--history",
            pay.idempotency.scope,
            pay.idempotency.key_for(order=1),
        )
        assert history.count("#sealed") == 3  # actor, request id and reason

    def test_reseal(self, settings: Settings) -> None:
        """From plain to a key, to another key, and back; what no key opens is left and reported."""
        pay(order=4711)
        plain = everything()
        self.use(settings, [FIRST])
        assert "3 audit rows resealed" in run("idempotency_stores", "reseal")
        assert not AuditEvent.objects.filter(sealed=None).exists()
        assert set(AuditEvent.objects.values_list("actor", flat=True)) == {""}
        pay(order=4712)
        self.use(settings, [SECOND, FIRST])
        assert "6 audit rows would be resealed" in run("idempotency_stores", "reseal", "--dry-run")
        assert "6 audit rows resealed" in run("idempotency_stores", "reseal")
        assert "audit" not in run("idempotency_stores", "reseal")
        self.use(settings, [FIRST])
        with pytest.raises(CommandError, match="6 audit rows cannot be opened"):
            run("idempotency_stores", "reseal")
        self.use(settings, [None, SECOND])
        run("idempotency_stores", "reseal")
        assert [found.value for found in referring_to("payment", "4711")] == ["4711"]
        assert set(AuditEvent.objects.values_list("sealed", flat=True)) == {None}
        Reference.maintenance.filter(value="4712").delete()
        AuditEvent.maintenance.filter(key=pay.idempotency.key_for(order=4712)).delete()
        assert everything() == plain
