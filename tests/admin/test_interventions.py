"""Release, expire and erase: never against a live owner, never without a log entry."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import partial
from hashlib import sha256
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from django_idempotency.core import interventions
from django_idempotency.core.conclusions import WorkResult
from django_idempotency.core.interventions import CHANGES, Intervention
from django_idempotency.core.records import Guarantee, Status
from django_idempotency.errors import StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from tests.admin.helpers import (
    LIST,
    completed,
    held,
    make_again,
    page_of,
    released,
    running,
    text_of,
)
from tests.stores.helpers import Call, elsewhere, row
from tests.support.factories import AdminFactory, UserFactory

#: What each intervention needs.
WHY = {"reason": "Checked with the provider: no charge."}


def nothing(record: Any) -> None:
    pass


@pytest.mark.django_db
class TestInterventions:
    def test_release(self, boss: Client) -> None:
        """After a release, the next request runs the work again; another body is still refused."""
        ticket = completed(key="order-42")
        response = boss.post(page_of(ticket, "release"), WHY, follow=True)
        assert "1 record was released." in text_of(response)
        record = row(ticket)
        assert (record.status, record.response_status, record.response_body) == (
            Status.FREE,
            None,
            None,
        )
        again, other = (
            Call(ticket=make_again(ticket)),
            Call(ticket=make_again(ticket, digest=b"other")),
        )
        assert type(other.open()).__name__ == "Mismatch"
        assert again.run() is not None
        assert again.operation.attempt == 2

    def test_expire(self, boss: Client) -> None:
        """After an expiry, the next request starts afresh, whatever its body."""
        ticket = completed(key="order-42")
        response = boss.post(page_of(ticket, "expire"), WHY, follow=True)
        assert "1 record has expired." in text_of(response)
        assert "idempotency-label expired" in text_of(response)
        other = Call(ticket=make_again(ticket, digest=b"other"))
        other.run()
        assert other.operation.attempt == 1

    def test_confirmed_first(self, boss: Client) -> None:
        """Opening the page or choosing the action changes nothing."""
        ticket = completed()
        page = text_of(boss.get(page_of(ticket, "release")))
        assert "csrfmiddlewaretoken" in page
        assert "made again" in page
        page = text_of(
            boss.post(LIST, {"action": "expire_records", "_selected_action": [str(ticket.id)]})
        )
        assert f'value="{ticket.id}"' in page
        assert row(ticket).status == Status.COMPLETED
        assert LogEntry.objects.count() == 0

    def test_in_the_list(self, boss: Client) -> None:
        """Each outcome is counted and reported."""
        tickets = [completed(), completed(), running(lease=60), released()]
        chosen = [str(ticket.id) for ticket in tickets]
        response = boss.post(
            LIST,
            {"action": "release_records", "_selected_action": chosen, "confirmed": "yes", **WHY},
            follow=True,
        )
        text = text_of(response)
        assert "2 records were released." in text
        assert "1 record was refused: a request with its key is running" in text
        assert "1 record was already free, expired or erased." in text
        assert [row(ticket).status for ticket in tickets] == [
            Status.FREE,
            Status.FREE,
            Status.RUNNING,
            Status.FREE,
        ]

    def test_never_across_pages(self, boss: Client) -> None:
        """A crafted "select all" acts on the ticked rows only."""
        ticked, other = completed(), completed()
        form = {
            "action": "expire_records",
            "_selected_action": [str(ticked.id)],
            "select_across": "1",
            "confirmed": "yes",
            **WHY,
        }
        boss.post(LIST, form)
        assert "idempotency-label completed" in text_of(boss.get(page_of(other)))
        assert "idempotency-label expired" in text_of(boss.get(page_of(ticked)))

    def test_erase(self, boss: Client) -> None:
        """Erase deletes response and digest; the next request starts afresh, and the log names the
        user.
        """
        ticket, expired = completed(key="order-42"), completed(key="order-43", ttl=-60)
        response = boss.post(page_of(ticket, "erase"), WHY, follow=True)
        assert "1 record was erased." in text_of(response)
        both = {
            "action": "erase_records",
            "_selected_action": [str(ticket.id), str(expired.id)],
            "confirmed": "yes",
            **WHY,
        }
        assert "1 record was erased." in text_of(boss.post(LIST, both, follow=True))
        left = IdempotencyRecord.objects.values_list(
            "status", "digest", "response_status", "response_body"
        )
        assert {(status, bytes(digest), *answer) for status, digest, *answer in left} == {
            (Status.FREE, b"", None, None)
        }
        assert {entry.object_id for entry in LogEntry.objects.all()} == {
            str(ticket.id),
            str(expired.id),
        }
        assert "Erased. It was completed, attempt 1" in LogEntry.objects.latest("pk").change_message
        other = Call(ticket=make_again(ticket, digest=b"other"))
        other.run()
        assert other.operation.attempt == 1

    def test_a_reason_is_required(self, boss: Client) -> None:
        """Without one the page asks again, and nothing is changed; it is on one line of the log,
        and not endless.
        """
        ticket = completed()
        for reason in ({}, {"reason": " \n "}):
            page = text_of(boss.post(page_of(ticket, "release"), {"confirmed": "yes", **reason}))
            assert "Give a reason" in page
        assert row(ticket).status == Status.COMPLETED
        boss.post(page_of(ticket, "release"), {"reason": "line one\nline two " + "x" * 600})
        message = LogEntry.objects.get().change_message
        assert "Reason: line one line two xx" in message
        assert message.count("x") < 600

    def test_the_log_keeps_what_was_there(self, boss: Client) -> None:
        """After a release the log has the response's status, size, hash and address, and no byte of
        its body.
        """
        headers = (("Content-Type", "application/json"), ("Location", "/api/charges/17/"))
        ticket = completed(b'{"card": "swordfish"}', headers)
        boss.post(page_of(ticket, "release"), WHY)
        message = LogEntry.objects.get().change_message
        for fact in (
            "response 201",
            "application/json",
            "Location /api/charges/17/",
            "21 bytes",
            WHY["reason"],
        ):
            assert fact in message
        assert sha256(b'{"card": "swordfish"}').hexdigest() in message
        assert "swordfish" not in message

    def test_the_log_of_an_erasure_keeps_no_trace_of_the_content(self, boss: Client) -> None:
        """A hash could be compared with a guess, and an address names what was made."""
        body = b'{"name": "Ada"}'
        ticket = completed(body, (("Location", "/people/ada/"),))
        boss.post(page_of(ticket, "erase"), WHY)
        message = LogEntry.objects.get().change_message
        assert "response 201, 15 bytes, kept until" in message
        assert sha256(body).hexdigest() not in message
        assert "ada" not in message.lower()

    def test_the_confirmation_shows_what_is_confirmed(self, boss: Client) -> None:
        """Keys that begin alike are told apart, with scope, status and response of each."""
        user = UserFactory()
        tickets = [
            completed(key=f"order-{number}", scope=f"user:auth.user:{user.pk}")
            for number in (1, 10)
        ]
        chosen = {
            "action": "release_records",
            "_selected_action": [str(ticket.id) for ticket in tickets],
        }
        page = text_of(boss.post(LIST, chosen))
        assert "<code>order-1</code>" in page
        assert "<code>order-10</code>" in page
        assert page.count(user.get_username()) == 2
        assert page.count(">201</span>") == 2

    @pytest.mark.parametrize("verb", ["release", "expire"])
    def test_audit(self, boss: Client, verb: str) -> None:
        ticket = completed()
        boss.post(page_of(ticket, verb), WHY)
        (entry,) = LogEntry.objects.all()
        assert entry.object_id == str(ticket.id)
        assert "It was completed, attempt 1" in entry.change_message
        assert User.objects.get(is_superuser=True) == entry.user
        assert "It was completed, attempt 1" in text_of(boss.get(page_of(ticket, "history")))

    # MariaDB's connection is closed then, as for an interrupt: with a test's transaction on it.
    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("verb", ["release", "expire", "erase"])
    def test_no_audit_no_change(self, verb: str) -> None:
        """The log entry and the change share a transaction."""
        ticket = completed()

        def broken(record: Any) -> None:
            raise RuntimeError

        with pytest.raises(RuntimeError):
            ORMStore().change(ticket.id, CHANGES[verb], audit=broken)
        assert row(ticket).status == Status.COMPLETED
        assert row(ticket).expires_at > datetime.now(timezone.utc)

    @pytest.mark.parametrize("verb", ["release", "expire", "erase"])
    def test_outcomes(self, verb: str) -> None:
        act = partial(ORMStore().change, wanted=CHANGES[verb])
        assert act(completed().id, audit=nothing) is Intervention.DONE
        # The lease has lapsed, and the row is not locked.
        assert act(running().id, audit=nothing) is Intervention.DONE
        assert act(running(lease=60).id, audit=nothing) is Intervention.BUSY
        # Its work still runs.
        assert act(running(lease=60, ttl=-60).id, audit=nothing) is Intervention.BUSY
        already = Intervention.DONE if verb == "erase" else Intervention.ALREADY
        assert act(completed(ttl=-60).id, audit=nothing) is already
        assert act(make_ticket().id, audit=nothing) is Intervention.GONE

    @pytest.mark.parametrize("verb", ["release", "expire"])
    def test_a_late_owner_changes_nothing(self, verb: str) -> None:
        """An owner that lost the record after its lease finds another owner's token."""
        ticket = running(guarantee=Guarantee.LEASE, lease=0.001)
        owner = row(ticket).owner
        while ORMStore().change(ticket.id, CHANGES[verb], audit=nothing) is Intervention.BUSY:
            pass
        assert row(ticket).owner != owner

    def test_release_keeps_a_dropped_fingerprint_open(self) -> None:
        ticket = released(WorkResult.DROPPED)
        assert (
            ORMStore().change(ticket.id, interventions.released, audit=nothing)
            is Intervention.ALREADY
        )
        assert bytes(row(ticket).digest) == b""

    def test_the_store_is_gone(self, boss: Client, monkeypatch: Any) -> None:
        """An unreachable store is reported in a sentence, not as an error page."""

        def gone(*args: Any, **kwargs: Any) -> Intervention:
            raise StoreUnavailable

        ticket = completed()
        monkeypatch.setattr(ORMStore, "change", gone)
        response = boss.post(
            LIST,
            {
                "action": "release_records",
                "_selected_action": [str(ticket.id)],
                "confirmed": "yes",
                **WHY,
            },
            follow=True,
        )
        assert "cannot be reached" in text_of(response)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", ["release", "expire", "erase"])
def test_a_held_record_is_refused_at_once(verb: str) -> None:
    """A live worker's row lock is reported whatever its lease, and nothing waits for it."""
    ticket = running()
    with held(ticket):
        assert (
            elsewhere(lambda: ORMStore().change(ticket.id, CHANGES[verb], audit=nothing))
            is Intervention.BUSY
        )
    assert (
        elsewhere(lambda: ORMStore().change(ticket.id, CHANGES[verb], audit=nothing))
        is Intervention.DONE
    )


@pytest.mark.django_db(transaction=True)
def test_the_page_of_a_held_record() -> None:
    """The page says that the record is held, and writes no log entry."""
    ticket, client = running(), Client()
    client.force_login(AdminFactory())
    with held(ticket):
        if connection.vendor == "sqlite":  # one writer: sessions and messages would queue behind it
            return
        response = elsewhere(lambda: client.post(page_of(ticket, "release"), WHY, follow=True))
    assert "1 record was refused: a request with its key is running" in text_of(response)
    assert LogEntry.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("forged", ["x", "1", "'; --", f"{2**70}"])
@pytest.mark.parametrize("action", ["release_records", "expire_records", "erase_records"])
def test_a_forged_primary_key(boss: Client, action: str, forged: str) -> None:
    """A forged primary key is a 404, also after the confirmation, and nothing else changes."""
    ticket = completed(key="order-42")
    for confirmed in ({}, {"confirmed": "yes", **WHY}):
        ticked = {"action": action, "_selected_action": [str(ticket.id), forged], **confirmed}
        assert boss.post(LIST, ticked).status_code == 404
    assert row(ticket).status == Status.COMPLETED
    assert LogEntry.objects.count() == 0
