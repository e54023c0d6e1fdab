"""A record that cannot be read is a problem document, and never leads to a second run."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from django_idempotency import idempotent_function
from django_idempotency.errors import RecordUnreadable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.signals import unreadable
from tests.support.factories import AdminFactory

from .conftest import Sender, effects

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]

#: What a row may contain: a damaged response, or the format of a version that we do not know.
DAMAGED: list[dict[str, Any]] = [
    {"response_headers": "{"},
    {"response_headers": '[["one"]]'},
    {"response_headers": "null"},
    {"response_headers": '[["X-Name", "a\\r\\nSet-Cookie: b"]]'},
    {"response_status": None},
    {"response_status": 9999},
]
FOREIGN: list[dict[str, Any]] = [{"status": 7}, {"guarantee": "later"}]


@pytest.mark.parametrize("damage", [*DAMAGED, *FOREIGN], ids=str)
def test_it_never_runs_again(entry_point: Sender, damage: dict[str, Any], settings: Any) -> None:
    """Whatever is wrong with the record, and even where a store that is down would let the request
    run.
    """
    settings.IDEMPOTENCY = {"ON_STORE_FAILURE": "open"}
    assert entry_point().status_code == 201
    IdempotencyRecord.objects.update(**damage)
    answer = entry_point()
    assert (answer.status_code, answer.json()["code"]) == (500, "record-unreadable")
    assert answer["Idempotency-Status"] == "refused"
    assert "Retry-After" not in answer
    assert effects() == 1


@pytest.mark.parametrize("damage", DAMAGED, ids=str)
def test_an_operator_expires_it(user: User, connect: Any, damage: dict[str, Any]) -> None:
    """The admin and the command show it; an operator expires it, and the next request runs."""
    send = connect("/plain/charges/", user)
    send()
    IdempotencyRecord.objects.update(**damage)
    record, admin = IdempotencyRecord.objects.get(), Client()
    admin.force_login(AdminFactory())
    for name, args in (("changelist", []), ("change", [record.pk])):
        page = admin.get(reverse(f"admin:django_idempotency_idempotencyrecord_{name}", args=args))
        assert page.status_code == 200
    call_command("idempotency_record", record.scope, record.key)
    call_command("idempotency_record", record.scope, record.key, "--expire")
    assert send().status_code == 201
    assert effects() == 2


@pytest.mark.parametrize("damage", FOREIGN, ids=str)
def test_a_row_of_a_later_version(user: User, connect: Any, damage: dict[str, Any]) -> None:
    """The row is listed and shown, and the command says what it is."""
    connect("/plain/charges/", user)()
    IdempotencyRecord.objects.update(**damage)
    record, admin = IdempotencyRecord.objects.get(), Client()
    admin.force_login(AdminFactory())
    for name, args in (("changelist", []), ("change", [record.pk])):
        page = admin.get(reverse(f"admin:django_idempotency_idempotencyrecord_{name}", args=args))
        assert "unreadable" in page.content.decode()
    for verb in ([], ["--expire"]):
        with pytest.raises(CommandError, match="cannot be read"):
            call_command("idempotency_record", record.scope, record.key, *verb)


def test_it_is_reported(user: User, connect: Any) -> None:
    """An unreadable record has a signal of its own, which should reach an operator."""
    send, heard = connect("/plain/charges/", user), []
    send()
    IdempotencyRecord.objects.update(response_headers="{")

    def hear(**given: Any) -> None:
        heard.append(given["operation"].ticket.key)

    unreadable.connect(hear)
    try:
        send()
    finally:
        unreadable.disconnect(hear)
    assert heard == [IdempotencyRecord.objects.get().key]


@pytest.mark.parametrize("damage", [DAMAGED[0], FOREIGN[0]], ids=str)
def test_a_call_of_a_function(damage: dict[str, Any]) -> None:
    """It raises, both for a call and for a look-up."""
    runs = []

    @idempotent_function(key="order", key_prefix="unreadable")
    def charge(order: int) -> int:
        runs.append(order)
        return order

    charge(1)
    IdempotencyRecord.objects.update(**damage)
    with pytest.raises(RecordUnreadable) as caught:
        charge(1)
    assert caught.value.key == IdempotencyRecord.objects.get().key
    with pytest.raises(RecordUnreadable):
        charge.idempotency.lookup(1).result()  # type: ignore[union-attr]
    assert runs == [1]
