"""Publishing messages while many others wait for their next attempt, each under its own key."""

from __future__ import annotations

import time
from datetime import timedelta

from django.db import DEFAULT_DB_ALIAS, connection
from django.test.utils import CaptureQueriesContext

from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.relaying import Relay
from django_idempotency.stores.base import utcnow

from .measuring import Effort, no_collection
from .table import Row, Section

#: Messages to publish, in batches of this size.
FRESH, BATCH = 2000, 100
#: Messages to write in one statement.
TOGETHER = 1000


def outbox(effort: Effort) -> Section:
    rates, statements, idle = [], [], []
    write("waits", effort.rows, waiting=True)
    with connection.cursor() as cursor:  # as autovacuum does within a minute
        cursor.execute(
            f"ANALYZE {'TABLE ' if connection.vendor == 'mysql' else ''}{Message._meta.db_table}"
        )
    judged = connection.features.has_select_for_update
    for _ in range(effort.rounds):
        write("fresh", FRESH, waiting=False)
        relay = Relay(publish, using=DEFAULT_DB_ALIAS, size=BATCH)
        relay.batch()  # its first scan
        left = FRESH - BATCH
        with no_collection():
            began = time.perf_counter()
            while relay.batch():
                pass
            rates.append(left / (time.perf_counter() - began))
            began = time.perf_counter()
            relay.batch()
            idle.append((time.perf_counter() - began) * 1000)
        write("fresh", BATCH, waiting=False)
        with CaptureQueriesContext(connection) as captured:
            relay.batch()
        statements.append(float(sum(each["sql"] not in ("BEGIN", "COMMIT") for each in captured)))
    Message.objects.all().delete()
    rows = [
        Row(
            name="messages that leave in a second",
            values=rates,
            unit="/s",
            bar=2000 if judged else None,
            at_least=True,
        ),
        # Two of them note the attempt before it is made, and lock the messages again.
        Row(name="statements of a batch", values=statements, unit="", bar=7 if judged else None),
        Row(name="a look that finds nothing", values=idle, unit="ms"),
    ]
    return Section(
        title=f"Outbox: batches of {BATCH} beside {effort.rows:,} messages that wait, a key each",
        rows=rows,
    )


def publish(message: Message) -> None:
    """Confirm immediately."""


def write(prefix: str, count: int, *, waiting: bool) -> None:
    now = utcnow()
    not_before = now + timedelta(minutes=5) if waiting else None
    Message.objects.bulk_create(
        (
            Message(
                topic="topic", key=f"{prefix}-{n}", payload=n, created_at=now, not_before=not_before
            )
            for n in range(count)
        ),
        batch_size=TOGETHER,
    )
