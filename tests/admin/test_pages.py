"""The page of a record: what it shows, what it never renders, and who may see it."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.failures import failed_with
from django_idempotency.core.records import MISSING, Counted, Record, Repeats, Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.wrapper import WrappedStore
from django_idempotency.testing.tickets import NOW, make_ticket
from tests.admin.helpers import (
    LIST,
    admin_of,
    completed,
    page_of,
    released,
    running,
    staff,
    text_of,
)
from tests.stores.helpers import Call, atomic_ticket, row
from tests.support.factories import AdminFactory, UserFactory, grant


class Reversing(WrappedStore):
    """Stores every body reversed."""

    def get(self, record_id: UUID) -> Record | None:
        record = super().get(record_id)
        if record is None or record.outcome is None or record.outcome.body is MISSING:
            return record
        return record._replace(outcome=record.outcome._replace(body=record.outcome.body[::-1]))


@pytest.mark.django_db
class TestRecordPage:
    def test_facts(self, boss: Client) -> None:
        ticket = completed(
            b'{"amount": 2499.10}', key="order-42", scope="user:auth.user:7", path="/api/charges/"
        )
        text = text_of(boss.get(page_of(ticket)))
        for fact in (
            "order-42",
            "user:auth.user:7",
            "POST /api/charges/",
            ticket.digest.hex(),
            "application/json",
            "201",
        ):
            assert fact in text
        assert "&quot;amount&quot;: 2499.10" in text

    def test_what_a_request_would_get(self, boss: Client) -> None:
        """The page says in words what a request would get, for each state of a record."""
        table = [
            (completed(), "gets the response below again"),
            (completed(MISSING), "gets 409 response-not-stored"),
            (released(), "runs the work as attempt 2; a different body"),
            (released(WorkResult.DROPPED), "runs the work as attempt 2; its body may differ"),
            (running(lease=60), "gets 409 in-progress"),
            (running(), "if it is abandoned, runs as attempt 2"),
            (completed(ttl=-60), "as if this record had never existed"),
        ]
        for ticket, words in table:
            assert words in text_of(boss.get(page_of(ticket))), words

    def test_a_failed_attempt(self, boss: Client) -> None:
        """A failed record says which error, when, and in which request; that is not a response."""
        ticket = atomic_ticket(key="order-42", request_id="req-1")
        operation = Call(ticket=ticket).operation
        operation.open()
        note = failed_with(TimeoutError("no answer from 10.0.0.7"), at=NOW)
        operation.settle(Ending(WorkResult.FAILED, note))
        text = text_of(boss.get(page_of(ticket)))
        for fact in (
            "<code>TimeoutError</code>",
            "Jan 2 2030",
            "<code>req-1</code>",
            "There is none.",
        ):
            assert fact in text
        listed = text_of(boss.get(LIST))
        assert ">TimeoutError</span>" in listed
        assert "10.0.0.7" not in text + listed

    def test_repeats(self, boss: Client, settings: Any) -> None:
        """With COUNT_REPLAYS the page says how often the key came again; without, it does not
        mention it.
        """
        settings.IDEMPOTENCY = {"COUNT_REPLAYS": True}
        ticket = completed()
        assert "came again" in text_of(boss.get(page_of(ticket))).lower()
        ORMStore().add_repeats([Counted(ticket.id, Repeats(2, 1, NOW), NOW)])
        assert "2 replays, 1 refused as another request; last seen" in text_of(
            boss.get(page_of(ticket))
        )
        settings.IDEMPOTENCY = {}
        assert "came again" not in text_of(boss.get(page_of(ticket))).lower()

    @pytest.mark.parametrize("verb", ["change", "release", "expire", "erase", "history"])
    def test_no_such_record(self, boss: Client, verb: str) -> None:
        assert boss.get(page_of(make_ticket(), verb)).status_code in (302, 404)

    @pytest.mark.parametrize(
        "evil", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>']
    )
    def test_nothing_stored_becomes_markup(self, boss: Client, evil: str) -> None:
        """Keys, scopes, paths, headers and bodies are shown as text on every page."""
        html = (("Content-Type", "text/html"), (evil, evil), ("X-A", evil))
        ticket = completed(
            evil.encode(), html, key=evil, scope=evil, path=f"/{evil}", method="POST"
        )
        weird = completed(evil.encode(), (("Content-Type", evil),), key="2")
        as_json = completed(json.dumps({evil: [evil]}).encode(), key="3")
        pages = [LIST, f"{LIST}?q={evil}", page_of(weird), page_of(as_json)]
        pages += [
            page_of(ticket, verb) for verb in ("change", "release", "expire", "erase", "history")
        ]
        for page in pages:
            assert evil not in text_of(boss.get(page)), page
        confirm = {"action": "release_records", "_selected_action": [str(ticket.id)]}
        assert evil not in text_of(boss.post(LIST, confirm))
        assert evil not in text_of(
            boss.post(page_of(ticket, "release"), {"reason": evil}, follow=True)
        )

    def test_half_a_character(self, boss: Client) -> None:
        """Half a surrogate pair, which JSON can carry in and out but no page can encode, breaks no
        page.
        """
        assert r"\ud83d" in text_of(boss.get(page_of(completed(rb'{"name": "\ud83d"}'))))

    @pytest.mark.parametrize("verb", ["change", "release", "expire", "erase"])
    def test_the_path_is_masked(self, boss: Client, verb: str) -> None:
        ticket = completed(path="/cards/4242424242424242/")
        assert "/cards/[redacted …4242]/" in text_of(boss.get(page_of(ticket, verb)))

    def test_the_page_reads_through_the_store(
        self, boss: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A store that keeps bodies in another form shows what it would replay, not what the table
        has.
        """
        ticket = completed(b'{"paid": "2499"}'[::-1])
        admin_of(boss, monkeypatch, get_store=lambda: Reversing(ORMStore()))
        assert "&quot;paid&quot;: &quot;2499&quot;" in text_of(boss.get(page_of(ticket)))

    @pytest.mark.parametrize(
        "headers", ["", "nonsense", "[1]", '[["a"]]', "null", "[" * 20_000 + "]" * 20_000]
    )
    def test_a_damaged_response(self, boss: Client, headers: str) -> None:
        """The page says that the stored response cannot be read, as a request with the key
        would.
        """
        ticket = completed()
        IdempotencyRecord.objects.update(response_headers=headers)
        text = text_of(boss.get(page_of(ticket)))
        assert "gets 500 record-unreadable" in text
        assert "It cannot be read" in text
        assert "There is none." not in text

    def test_half_a_character_in_a_header(self, boss: Client) -> None:
        """It is written out, since no page can be encoded with it."""
        ticket = completed()
        IdempotencyRecord.objects.update(response_headers='[["X-Name", "a\\ud800"]]')
        assert "a\\ud800" in text_of(boss.get(page_of(ticket)))

    def test_a_row_of_a_later_version(self, boss: Client) -> None:
        """A row that this version cannot read has a page, which says so; so does the list."""
        ticket = completed()
        IdempotencyRecord.objects.update(guarantee="quantum")
        text = text_of(boss.get(page_of(ticket)))
        assert "It cannot be read" in text
        for page in (text, text_of(boss.get(LIST))):
            assert ">unreadable<" in page

    def test_deleted_since_the_row_was_read(
        self, boss: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A record that is deleted while its page is made is reported as missing."""
        ticket = completed()
        monkeypatch.setattr(ORMStore, "get", lambda *_: None)
        assert boss.get(page_of(ticket)).status_code == 302
        assert boss.post(page_of(ticket, "release")).status_code == 404

    def test_a_page_is_read_only(self, boss: Client) -> None:
        ticket = completed()
        assert boss.post(page_of(ticket), {"status": 0}).status_code == 403
        assert boss.get(f"{LIST}add/").status_code == 403
        assert boss.post(page_of(ticket, "delete"), {"post": "yes"}).status_code == 403
        delete = {"action": "delete_selected", "_selected_action": [str(ticket.id)], "post": "yes"}
        boss.post(LIST, delete)
        assert row(ticket).status == Status.COMPLETED


@pytest.mark.django_db
class TestPermissions:
    def test_the_body_needs_one_of_its_own(self) -> None:
        ticket = completed(b'{"balance": "17.25"}')
        assert "17.25" not in text_of(staff().get(page_of(ticket)))
        assert "you need the permission" in text_of(staff().get(page_of(ticket)))
        assert "17.25" in text_of(staff("view_response").get(page_of(ticket)))

    def test_other_users_see_nothing(self) -> None:
        ticket = completed()
        client = Client()
        client.force_login(UserFactory(is_staff=True))
        for page in (LIST, page_of(ticket), page_of(ticket, "release"), page_of(ticket, "history")):
            assert client.get(page).status_code == 403
            assert Client().get(page).status_code == 302

    @pytest.mark.parametrize(
        ("mine", "other"), [("release", "expire"), ("expire", "release"), ("erase", "release")]
    )
    def test_each_intervention_needs_its_own(self, mine: str, other: str) -> None:
        client = staff(f"{mine}_record")
        ticket = completed()
        page, listed = text_of(client.get(page_of(ticket))), text_of(client.get(LIST))
        assert f'href="{page_of(ticket, mine)}"' in page
        assert page_of(ticket, other) not in page
        assert f'value="{mine}_records"' in listed
        assert f'value="{other}_records"' not in listed
        assert client.post(page_of(ticket, other)).status_code == 403
        client.post(
            LIST,
            {
                "action": f"{other}_records",
                "_selected_action": [str(ticket.id)],
                "confirmed": "yes",
                "reason": "checked",
            },
        )
        assert LogEntry.objects.count() == 0
        assert client.post(page_of(ticket, mine), {"reason": "checked"}).status_code == 302
        assert LogEntry.objects.count() == 1

    def test_an_intervention_without_the_right_to_view(self) -> None:
        client, user = Client(), UserFactory(is_staff=True)
        grant(user, IdempotencyRecord, "release_record")
        client.force_login(user)
        assert client.post(page_of(completed(), "release")).status_code == 403

    def test_csrf(self) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(AdminFactory())
        assert client.post(page_of(completed(), "release")).status_code == 403


@pytest.mark.django_db
def test_another_database(settings: Any) -> None:
    """The admin reads from the database that the store writes to."""
    from django.contrib.admin import site

    from django_idempotency.admin import IdempotencyRecordAdmin

    settings.IDEMPOTENCY = {
        "STORES": {
            "default": {
                "BACKEND": "django_idempotency.stores.orm.ORMStore",
                "OPTIONS": {"using": "default"},
            },
            "other": {
                "BACKEND": "django_idempotency.stores.orm.ORMStore",
                "OPTIONS": {"using": "elsewhere"},
            },
        }
    }

    class OtherAdmin(IdempotencyRecordAdmin):
        store_alias = "other"

    assert IdempotencyRecordAdmin(IdempotencyRecord, site).get_store() is stores["default"]
    other = OtherAdmin(IdempotencyRecord, site).get_store()
    assert other is stores["other"]
