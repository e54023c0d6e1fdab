"""Records in every state, and the users who look at them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from django.test import Client
from django.urls import reverse

from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.records import Outcome, Ticket
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from tests.stores.helpers import Call, atomic_ticket
from tests.support.factories import UserFactory, grant

LIST = "/admin/django_idempotency/idempotencyrecord/"
JSON = (("Content-Type", "application/json"),)


def page_of(ticket: Ticket, verb: str = "change") -> str:
    return reverse(f"admin:django_idempotency_idempotencyrecord_{verb}", args=[ticket.id])


def completed(
    body: Any = b"{}", headers: Any = JSON, outcome: Outcome | None = None, **fields: Any
) -> Ticket:
    """Store a response under a key, as a request would."""
    ticket = atomic_ticket(**{"key": uuid4().hex, **fields})
    operation = Call(ticket=ticket).operation
    operation.open()
    outcome = outcome or Outcome(status=201, headers=headers, body=body)
    operation.settle(Ending(WorkResult.KEPT, outcome, succeeded=True))
    return ticket


def released(ended: WorkResult = WorkResult.FAILED, **fields: Any) -> Ticket:
    ticket = atomic_ticket(**{"key": uuid4().hex, **fields})
    Call(ticket=ticket).run(ended)
    return ticket


def running(**fields: Any) -> Ticket:
    """Claim a key and do nothing more. Its lease lapses at once, unless `lease` says otherwise."""
    ticket = atomic_ticket(**{"key": uuid4().hex, **fields})
    ORMStore().claim(ticket)
    return ticket


@contextmanager
def held(ticket: Ticket) -> Iterator[None]:
    """Hold a record as a live worker does. Others must look through another connection."""
    with ORMStore().guard(ticket) as guard:
        assert guard.record is not None
        yield
        guard.set_rollback()


def staff(*permissions: str) -> Client:
    client, user = Client(), UserFactory(is_staff=True)
    grant(user, IdempotencyRecord, "view_idempotencyrecord", *permissions)
    client.force_login(user)
    return client


def text_of(response: Any) -> str:
    assert response.status_code == 200, response
    return str(response.content.decode())


def make_again(ticket: Ticket, **fields: Any) -> Ticket:
    """Make the ticket of the next request with the same key."""

    return ticket._replace(owner=uuid4(), **fields)


def admin_of(client: Client, monkeypatch: Any, **attributes: Any) -> None:
    """Change the registered admin for one test."""
    from django.contrib.admin import site

    for name, value in attributes.items():
        monkeypatch.setattr(site._registry[IdempotencyRecord], name, value)
