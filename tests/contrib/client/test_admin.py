"""The admin of outgoing calls: a person decides about those whose outcome is unknown."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_idempotency.contrib.client.ledger import id_of
from django_idempotency.contrib.client.models import OutgoingCall
from django_idempotency.stores.base import utcnow
from tests.support.factories import UserFactory, grant

pytestmark = [pytest.mark.any_database, pytest.mark.django_db]
URL = "/admin/idempotency_client/outgoingcall/"


def make(name: str, state: str = "held") -> OutgoingCall:
    now = utcnow()
    return OutgoingCall.objects.create(
        id=id_of("fake", name),
        provider="fake",
        name=name,
        key=f"key of {name}",
        method="POST",
        url="https://api.example/pay",
        digest=b"d" * 32,
        state=state,
        attempts=1,
        first_sent=now,
        last_sent=now,
        request=b'["the request"]',
        response=b'["the response"]',
        reference="req_1",
    )


@pytest.fixture
def person(client: Client, providers: dict[str, Any]) -> Client:
    user = UserFactory(is_staff=True)
    grant(user, OutgoingCall, "view_outgoingcall")
    grant(user, OutgoingCall, "decide_outgoingcall")
    client.force_login(user)
    return client


def decide(
    client: Client, action: str, *calls: OutgoingCall, reason: str = "Stripe says so"
) -> Any:
    data = {
        "action": action,
        "_selected_action": [str(call.pk) for call in calls],
        "reason": reason,
    }
    return client.post(URL, data, follow=True)


@pytest.mark.parametrize(
    ("action", "state"), [("was_carried_out", "succeeded"), ("was_not_carried_out", "void")]
)
def test_decided(person: Client, action: str, state: str) -> None:
    """Held and unknown calls are decided, the others left; the log has the reason."""
    held, unknown, running, done = (
        make("a"),
        make("b", "unknown"),
        make("c", "open"),
        make("d", "succeeded"),
    )
    page = decide(person, action, held, unknown, running, done)
    assert b"2 calls were decided." in page.content
    assert b"2 calls were left" in page.content
    assert [
        OutgoingCall.objects.get(pk=call.pk).state for call in (held, unknown, running, done)
    ] == [
        state,
        state,
        "open",
        "succeeded",
    ]
    assert OutgoingCall.objects.get(pk=held.pk).request is None
    assert {entry.change_message for entry in LogEntry.objects.all()} == {
        f"{state}: Stripe says so"
    }
    assert LogEntry.objects.count() == 2


def test_without_a_reason(person: Client) -> None:
    held = make("a")
    page = decide(person, "was_carried_out", held, reason="  ")
    assert b"Type a reason" in page.content
    held.refresh_from_db()
    assert held.state == "held"


def test_without_the_permission(client: Client, providers: dict[str, Any]) -> None:
    user = UserFactory(is_staff=True)
    grant(user, OutgoingCall, "view_outgoingcall")
    client.force_login(user)
    held = make("a")
    decide(client, "was_carried_out", held)
    held.refresh_from_db()
    assert held.state == "held"
    assert not LogEntry.objects.exists()


def test_shown(person: Client) -> None:
    """The list and the page show the facts, and never a request or a response.

    Held calls come first.
    """
    make("done", "succeeded")
    held = make("held")
    page = person.get(URL)
    assert page.content.index(b">held<") < page.content.index(b">done<")
    detail = person.get(f"{URL}{held.pk}/change/")
    assert b"req_1" in detail.content
    assert b"key of held" in detail.content
    assert b"the re" not in page.content + detail.content
    assert person.get(f"{URL}?q=done").content.count(b"done</a>") == 1
    assert b"done</a>" not in person.get(f"{URL}?state__exact=held").content
    assert b"done</a>" not in person.get(f"{URL}?provider=other").content
    assert person.get(f"{URL}?response__startswith=x").status_code == 400
