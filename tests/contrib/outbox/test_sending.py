"""outbox.send(): in the transaction of the effect, or not at all."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.test import TestCase

from django_idempotency.contrib import outbox
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.records import Outcome
from django_idempotency.engine.operation import AtomicOperation
from django_idempotency.stores.orm import ORMStore
from testproject.payments.models import Effect

from ...stores.helpers import atomic_ticket
from .helpers import committed, sent, waiting


def test_importing_it_loads_no_model() -> None:
    """Settings and modules of any app may import it."""
    script = (
        "import sys; from django_idempotency.contrib import outbox; print([m for m in "
        "sys.modules if 'models' in m and 'idem' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("installed", [True, False])
def test_without_the_app_there_is_no_table(installed: bool) -> None:
    """Such projects get no command either."""
    script = f"""
from django.conf import settings
from testproject import settings as testproject
apps = [app for app in testproject.INSTALLED_APPS if {installed} or app != "django_idempotency.contrib.outbox"]
settings.configure(DATABASES={{}}, INSTALLED_APPS=apps, SECRET_KEY="s", ROOT_URLCONF="testproject.urls")
import django; django.setup()
from django.apps import apps
from django.core.management import get_commands
print("django_idempotency_message" in [model._meta.db_table for model in apps.get_models()], "idempotency_relay" in get_commands())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [str(installed)] * 2


@pytest.mark.django_db
class TestMessages:
    @pytest.mark.parametrize(
        "payload", [None, 0, "", [], False, {}, {"amount": 2499, "lines": [1, None]}, "grün"]
    )
    def test_payloads(self, payload: Any) -> None:
        """Anything that JSON can express; None, 0, "", [] and False are payloads, too"""
        with transaction.atomic():
            outbox.send("topic", payload)
        found = Message.objects.get().payload
        assert (found, type(found)) == (payload, type(payload))

    def test_what_django_makes_json_of(self) -> None:
        payload = {
            "at": datetime(2026, 1, 2, tzinfo=timezone.utc),
            "sum": Decimal("1.50"),
            "id": UUID(int=7),
        }
        with transaction.atomic():
            outbox.send("topic", payload, headers={"sum": Decimal(2)})
        message = Message.objects.get()
        assert message.payload == {
            "at": "2026-01-02T00:00:00Z",
            "sum": "1.50",
            "id": str(UUID(int=7)),
        }
        assert message.headers == {"sum": "2"}

    def test_ids(self) -> None:
        """An id is random, unique, and the one that the publisher will see."""
        first, second = sent("", "")
        assert first != second
        assert set(Message.objects.values_list("message_id", flat=True)) == {first, second}

    def test_one_statement(self, django_assert_num_queries: Any) -> None:
        with transaction.atomic(), django_assert_num_queries(1):
            outbox.send("topic", {})

    @pytest.mark.parametrize(
        ("message", "words"),
        [
            ({"topic": ""}, "A topic has"),
            ({"topic": "t" * 256}, "A topic has"),
            ({"key": "k" * 256}, "A key has"),
            ({"key": "  "}, "A key has"),
        ],
    )
    def test_no_messages(self, message: dict[str, str], words: str) -> None:
        """They are refused on SQLite too, which has no lengths, and on MariaDB, which ignores
        trailing spaces.
        """
        with transaction.atomic(), pytest.raises(ValueError, match=words):
            outbox.send(message.get("topic", "topic"), 1, key=message.get("key", ""))
        assert waiting() == []

    @pytest.mark.parametrize(
        "payload", [object(), {"a": {1, 2}}, float("nan"), ["a\0b"], {"\0": 1}, "\\\0"]
    )
    def test_what_json_cannot_say(self, payload: Any) -> None:
        """The error comes before any statement, so the transaction is intact."""
        with transaction.atomic():
            with pytest.raises((TypeError, ValueError)):
                outbox.send("topic", payload)
            with pytest.raises((TypeError, ValueError)):
                outbox.send("topic", 1, headers={"name": payload})
            outbox.send("topic", r"good: \u0000")
        assert waiting() == [("", r"good: \u0000")]


class TestInATestCase(TestCase):
    def test_its_own_transaction_does_not_count(self) -> None:
        """If it did, a missing atomic() would show only in production."""
        with pytest.raises(outbox.OutsideTransaction):
            outbox.send("topic", 1)
        with transaction.atomic():
            outbox.send("topic", 1)
        assert waiting() == [("", 1)]


@committed
class TestTransactions:
    def test_outside(self) -> None:
        """Outside of a transaction an error says what to do, and no message is written."""
        with pytest.raises(outbox.OutsideTransaction, match=r"transaction\.atomic\(\)"):
            outbox.send("topic", 1)
        assert waiting() == []

    def test_without_autocommit(self) -> None:
        """A transaction that the project ends by hand counts."""
        transaction.set_autocommit(False)
        try:
            outbox.send("topic", 1)
            transaction.rollback()
        finally:
            transaction.set_autocommit(True)
        assert waiting() == []

    def test_rollback_forgets_it(self) -> None:
        with transaction.atomic():
            outbox.send("topic", 1)
            transaction.set_rollback(True)
        assert waiting() == []

    @pytest.mark.parametrize("fails", [False, True])
    def test_inside_a_guard(self, fails: bool) -> None:
        """Effect, record and message are kept together or not at all."""
        operation = AtomicOperation(ORMStore(), atomic_ticket(), lambda *_: None)
        operation.open()
        Effect.objects.create(label="charge")
        outbox.send("payment.created", {"amount": 1})
        operation.settle(
            Ending(WorkResult.FAILED) if fails else Ending(WorkResult.KEPT, Outcome(status=201))
        )
        assert (Effect.objects.count(), len(waiting())) == ((0, 0) if fails else (1, 1))
