"""The admin of the outbox: read-only, with secrets masked, except that an operator may end a
back-off.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from django_idempotency.contrib import outbox
from django_idempotency.contrib.outbox import admin
from django_idempotency.contrib.outbox.models import SET_ASIDE, Message
from tests.contrib.at_rest.sealed.keys import FIRST, SECOND

from ...support.factories import grant
from .helpers import sent

pytestmark = pytest.mark.django_db

LIST = "admin:idempotency_outbox_message_changelist"
LATER = datetime.now(timezone.utc) + timedelta(days=1)


def client_with(*codenames: str) -> Client:
    user = User.objects.create_user("operator", is_staff=True)
    grant(user, Message, *codenames)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator() -> Client:
    return client_with("view_message", "retry_message")


def failed(*keys: str) -> list[Message]:
    sent(*keys)
    Message.objects.update(attempts=3, last_error="ValueError: no such exchange", not_before=LATER)
    return list(Message.objects.order_by("pk"))


def try_again(client: Client, *messages: Message) -> Any:
    ticked = {"action": "try_again", "_selected_action": [message.pk for message in messages]}
    return client.post(reverse(LIST), ticked, follow=True)


def due() -> list[Any]:
    return [
        message.payload
        for message in Message.objects.filter(not_before__lte=datetime.now(timezone.utc)).order_by(
            "pk"
        )
    ]


def test_the_list(operator: Client) -> None:
    failed("customer-7")
    page = operator.get(reverse(LIST)).content.decode()
    for shown in ("topic", "customer-7", "0\xa0minutes", "ValueError: no such exchange"):
        assert shown in page


def test_a_message(operator: Client) -> None:
    """Anything that looks like a secret is masked."""
    with transaction.atomic():
        outbox.send(
            "topic",
            {"amount": 5, "token": "tok_hunter2"},
            headers={"Authorization": "Bearer hunter2"},
        )
    message = Message.objects.get()
    page = operator.get(
        reverse("admin:idempotency_outbox_message_change", args=[message.pk])
    ).content.decode()
    assert str(message.message_id) in page
    assert "&quot;amount&quot;: 5" in page
    assert "hunter2" not in page


@pytest.mark.parametrize(
    "lookup", ["payload__token__startswith", "payload__icontains", "headers__a__startswith"]
)
def test_no_lookup_reveals_what_is_masked(operator: Client, lookup: str) -> None:
    """A look-up could otherwise reveal it letter by letter."""
    with transaction.atomic():
        outbox.send("topic", {"token": "tok_hunter2"}, headers={"a": "tok_hunter2"})
    assert operator.get(reverse(LIST), {lookup: "tok_h"}).status_code == 400


def test_nothing_can_be_changed(admin_client: Client) -> None:
    """Not even a superuser can change anything."""
    (message,) = failed("")
    assert admin_client.get(reverse("admin:idempotency_outbox_message_add")).status_code == 403
    assert (
        admin_client.get(
            reverse("admin:idempotency_outbox_message_delete", args=[message.pk])
        ).status_code
        == 403
    )
    change = reverse("admin:idempotency_outbox_message_change", args=[message.pk])
    assert admin_client.post(change, {"topic": "other"}).status_code == 403
    assert Message.objects.get().topic == "topic"


def test_try_again_now(operator: Client) -> None:
    """The ticked messages are retried with those that they wait for, and no others.

    Attempts are kept; it is logged.
    """
    messages = failed("a", "b", "a", "", "")
    page = try_again(operator, messages[2], messages[3]).content.decode()
    assert "3 messages will be retried now." in page
    assert due() == [0, 2, 3]
    assert set(Message.objects.values_list("attempts", flat=True)) == {3}
    assert LogEntry.objects.count() == 2


def test_a_message_that_is_set_aside(operator: Client) -> None:
    """The list says so, and names no date; tried again, it has all of its attempts before it."""
    first, behind = failed("a", "a")
    Message.objects.filter(pk=first.pk).update(unended=5, not_before=SET_ASIDE)
    Message.objects.filter(pk=behind.pk).update(not_before=None)
    page = operator.get(reverse(LIST)).content.decode()
    assert "set aside" in page
    assert "9999" not in page
    assert (
        "9999"
        not in operator.get(
            reverse("admin:idempotency_outbox_message_change", args=[first.pk])
        ).content.decode()
    )
    assert "1 message will be retried now." in try_again(operator, behind).content.decode()
    first.refresh_from_db()
    assert (due(), first.unended, first.is_set_aside) == ([0], 0, False)


def test_many_are_tried_again(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage all may be ticked: no payload is read, none takes its own statement, and one
    line is logged.
    """
    monkeypatch.setattr(admin, "TOGETHER", 3)
    messages = failed(*["a", ""] * 3, "b")
    with CaptureQueriesContext(connection) as statements:
        page = try_again(operator, *messages).content.decode()
    assert "7 messages will be retried now." in page
    assert [entry.object_repr for entry in LogEntry.objects.all()] == ["7 messages"]
    said = [
        statement["sql"]
        for statement in statements
        if statement["sql"].startswith(("INSERT", "UPDATE"))
    ]
    assert sum("message" in sql and "UPDATE" in sql for sql in said) == 3
    assert not [
        s["sql"]
        for s in statements
        if "django_idempotency_message" in s["sql"] and "payload" in s["sql"]
    ]


def test_try_again_needs_its_permission() -> None:
    (message,) = failed("")
    try_again(client_with("view_message"), message)
    assert due() == []


def test_seeing_needs_its_permission() -> None:
    assert client_with("retry_message").get(reverse(LIST)).status_code == 403


@pytest.mark.parametrize("forged", ["x", f"{2**70}", str(UUID(int=1))])
def test_a_forged_primary_key(operator: Client, forged: str) -> None:
    """A forged primary key is a 404."""
    ticked = {"action": "try_again", "_selected_action": [forged]}
    assert operator.post(reverse(LIST), ticked).status_code == 404


def test_a_sealed_message(operator: Client, settings: Settings) -> None:
    """The page opens what the keys allow, and says so if they do not."""
    settings.IDEMPOTENCY = {"ENCRYPTION_KEYS": [FIRST]}
    with transaction.atomic():
        outbox.send("topic", {"amount": 2499})
    message = Message.objects.get()
    page = reverse("admin:idempotency_outbox_message_change", args=[message.pk])
    assert "2499" in operator.get(page).content.decode()
    settings.IDEMPOTENCY = {"ENCRYPTION_KEYS": [SECOND]}
    assert "no key of ENCRYPTION_KEYS opens it" in operator.get(page).content.decode()
