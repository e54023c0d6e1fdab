"""The DynamoDB store over HTTP: requests, and ratios to GetItem.

The server is moto, so the times mean little.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any
from uuid import UUID

from django_idempotency.stores.dynamodb import DynamoDBStore

from . import acts
from .measuring import Case, Effort, interleaved
from .store import BODY
from .table import Row, Section

REGION = "eu-central-1"
#: The most samples in a round: a request takes moto milliseconds.
SAMPLES = 10


def missing() -> str:
    """Name what is not installed, if anything."""
    return ", ".join(name for name in ("boto3", "moto", "flask") if find_spec(name) is None)


@contextmanager
def served() -> Iterator[DynamoDBStore]:
    """Yield a store with its own server, which runs in its own process."""
    import boto3
    from botocore.config import Config

    from tests.support.store_servers import AWSServer, running

    with running(AWSServer()) as server:
        session = boto3.Session(
            aws_access_key_id="bench", aws_secret_access_key="bench", region_name=REGION
        )
        config = Config(connect_timeout=10, read_timeout=10)
        store = DynamoDBStore(
            table="bench", endpoint_url=server.url, session=session, config=config
        )
        for _ in store.create_table():
            pass
        yield store


def sections(store: DynamoDBStore, effort: Effort) -> Iterator[Section]:
    yield verbs(store, replace(effort, samples=min(effort.samples, SAMPLES)))
    yield size(store)


def verbs(store: DynamoDBStore, effort: Effort) -> Section:
    known = acts.finished(store)
    get = Case("GetItem", lambda: partial(store.client.boto.get_item, **read(store, known.id)))
    cases = [
        (acts.claim(store), 1),
        (acts.replay(store), 1),
        (acts.settle(store), 1),
        (acts.first_call(store), 2),
    ]
    with requests(store) as sent:
        counts = [acts.count(case, sent) for case, _ in cases]
    timings = interleaved([get, *(case for case, _ in cases)], effort)
    rows = [
        Row(
            name=case.name,
            values=timings.ratios(case.name, get.name),
            statements=count,
            most_statements=most,
        )
        for (case, most), count in zip(cases, counts, strict=True)
    ]
    return Section(
        title=f"Verbs; a consistent GetItem on the same client = 1 ({effort.samples} samples)",
        rows=rows,
    )


def read(store: DynamoDBStore, record_id: UUID) -> dict[str, Any]:
    return {
        "TableName": store.schema.table,
        "Key": store.schema.key(record_id),
        "ConsistentRead": True,
    }


@contextmanager
def requests(store: DynamoDBStore) -> Iterator[list[str]]:
    """Collect the HTTP requests, including retries."""
    sent: list[str] = []
    events = store.client.boto.meta.events

    def note(*, event_name: str, **_: Any) -> None:
        sent.append(event_name)

    events.register_first("before-send.dynamodb", note)
    try:
        yield sent
    finally:
        events.unregister("before-send.dynamodb", note)


def size(store: DynamoDBStore) -> Section:
    """Measure items as DynamoDB does: names, texts and bytes, and numbers by their digits."""
    used = []
    for record in (acts.claimed(store), acts.finished(store)):
        item = store.client.boto.get_item(**read(store, record.id))["Item"]
        used.append(sum(len(name) + weight(value) for name, value in item.items()))
    rows = [
        Row(name="in progress", values=[used[0]], unit="B"),
        Row(name="finished, without its body of 1 kB", values=[used[1] - len(BODY)], unit="B"),
    ]
    return Section(title="Bytes an item", rows=rows)


def weight(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "N":
        return (len(content) + 1) // 2 + 1
    return len(content.encode() if isinstance(content, str) else content)
