"""The DynamoDB store keeps the contract, on a server over HTTP, and its own promises."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from botocore.config import Config
from django.core.exceptions import ImproperlyConfigured

from django_idempotency.core import conclusions, rules
from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.hashing import first_operation
from django_idempotency.core.interventions import Intervention, expired_now
from django_idempotency.core.records import MISSING, Outcome, Record, Status, Ticket
from django_idempotency.errors import LostRace, RecordUnreadable, StoreUnavailable
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.dynamodb import DynamoDBStore, items
from django_idempotency.stores.dynamodb.client import PAUSE
from django_idempotency.testing import StoreContract
from django_idempotency.testing.contract import Contract
from django_idempotency.testing.contract.claims import Claims
from django_idempotency.testing.contract.endings import Endings
from django_idempotency.testing.contract.maintenance import Maintenance
from django_idempotency.testing.tickets import make_ticket

from ..elsewhere import dynamodb_store
from .server import LOST, answered, asked, item, make_store, make_table

ANSWER = Outcome(status=201, headers=(("Location", "/1/"),), body=b'{"id": 1}')


class Stored(Contract):
    """How a store is made, and what it can do."""

    #: The options that the store is made with.
    options: ClassVar[dict[str, Any]] = {}
    frozen = True
    costs: ClassVar = {
        **dict.fromkeys(
            ("claim", "ours", "busy", "mismatch", "settle", "replay", "release", "late settle"), 1
        ),
        **dict.fromkeys(("takeover", "next attempt", "new life"), 2),
        **dict.fromkeys(("renew", "get"), 1),
        "renew many": 2,
    }

    @pytest.fixture(scope="class")
    @classmethod
    def table(cls, dynamodb: str) -> str:
        return made_table(dynamodb, cls.options)

    @pytest.fixture
    def store(self, dynamodb: str, table: str) -> Iterator[DynamoDBStore]:
        yield from opened(dynamodb, table, **self.options)

    def elapse(self, store: Any, seconds: float) -> None:
        elapse(store, seconds)

    def vanish(self, store: DynamoDBStore, ticket: Ticket) -> None:
        store.client.boto.delete_item(TableName=store.schema.table, Key=store.schema.key(ticket.id))

    def elsewhere(self, store: DynamoDBStore) -> Callable[[], BaseStore]:
        return partial(
            dynamodb_store,
            store.client.boto.meta.endpoint_url,
            store.schema.table,
            store._clock(),
            self.options,
        )

    def trips(self, store: DynamoDBStore) -> AbstractContextManager[Sized]:
        return asked(store)


class TestDynamoDBStore(Stored, StoreContract):
    examples = 10  # moto is slow


class TestCompositeKey(Stored, Claims, Endings, Maintenance):
    """A shared table: one partition value for us, the id as the sort key, every attribute under
    another name.

    Each verb has its own expressions. Races, async variants and trips do not depend on these names:
    see above.
    """

    options: ClassVar = {
        "key_attr": "PK",
        "sort_key_attr": "Order",
        "static_pk_value": "idempotency#1",
        "attributes": {name: f"a.{number}-{name}" for number, name in enumerate(items._ALL)},
    }


def made_table(dynamodb: str, options: Mapping[str, Any] = {}) -> str:
    """Create a table for many tests: that takes longer than most of them."""
    store = make_table(make_store(dynamodb, **options))
    store.client.boto.close()
    return store.schema.table


def opened(dynamodb: str, table: str, **options: Any) -> Iterator[DynamoDBStore]:
    """Yield a store over the table, which is empty, and is emptied."""
    store = make_store(dynamodb, table=table, **options)
    yield store
    boto, schema = store.client.boto, store.schema
    for page in boto.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
        for left in page["Items"]:
            key = {name: left[name] for name in (schema.key_attr, schema.sort_key_attr) if name}
            boto.delete_item(TableName=table, Key=key)
    boto.close()


def elapse(store: Any, seconds: float) -> None:
    store._clock.now += timedelta(seconds=seconds)


@pytest.fixture(scope="module")
def table(dynamodb: str) -> str:
    return made_table(dynamodb)


@pytest.fixture
def store(dynamodb: str, table: str) -> Iterator[DynamoDBStore]:
    yield from opened(dynamodb, table)


def complete(store: DynamoDBStore, ticket: Ticket, outcome: Outcome = ANSWER, **given: Any) -> bool:
    run = rules.read(store.claim(ticket), ticket)
    assert isinstance(run, rules.Execute)
    settlement = conclusions.settlement(
        SettledState.COMPLETED, ticket, run, fence=None, outcome=outcome, ttl=given.get("ttl")
    )
    assert settlement is not None
    return store.settle(ticket, settlement)


def stored(store: DynamoDBStore, ticket: Ticket) -> Record:
    record = store.get(ticket.id)
    assert record is not None
    return record


def ttl(store: DynamoDBStore) -> int:
    return int(item(store)["ttl"]["N"])


# ----------------------------------------------------------------------------------------- requests


def test_a_first_call_is_two_requests(store: DynamoDBStore) -> None:
    """A first call takes two requests: one to claim, one to settle."""
    with asked(store) as requests:
        assert complete(store, make_ticket()) is True
    assert requests == ["PutItem", "UpdateItem"]


def test_what_meets_a_record_is_one_request(store: DynamoDBStore) -> None:
    """A replay, a busy key, another body and a repeated claim take one request each."""
    ticket = make_ticket()
    store.claim(ticket)
    complete(store, make_ticket(key="done"))
    for again in (make_ticket(), make_ticket(body=b"other"), ticket, make_ticket(key="done")):
        with asked(store) as requests:
            store.claim(again)
        assert requests == ["PutItem"]


def test_a_takeover_is_two_requests(store: DynamoDBStore) -> None:
    """Taking over a lapsed lease, a released key or an expired record takes two requests."""
    for number, seconds in enumerate((31, 86_400 + 31)):
        store.claim(make_ticket(key=f"{number}"))
        elapse(store, seconds)
        with asked(store) as requests:
            store.claim(make_ticket(key=f"{number}"))
        assert requests == ["PutItem", "UpdateItem"]


def test_other_verbs(store: DynamoDBStore) -> None:
    """A lookup is one read, a purge takes none; each renewal is one request."""
    tickets = [make_ticket(key=f"{number}") for number in range(3)]
    for ticket in tickets:
        store.claim(ticket)
    with asked(store) as requests:
        store.get(tickets[0].id)
        store.purge(limit=1)
        assert requests == ["GetItem"]
    with asked(store) as requests:
        assert store.renew([]) == set()
        assert store.renew(tickets) == {ticket.owner for ticket in tickets}
        assert requests == ["UpdateItem"] * 3


def test_reads_are_consistent(store: DynamoDBStore) -> None:
    """A lookup sees what was written just before."""
    seen: list[Any] = []
    store.client.boto.meta.events.register(
        "provide-client-params.dynamodb.GetItem", lambda params, **_: seen.append(params)
    )
    store.get(make_ticket().id)
    assert [params["ConsistentRead"] for params in seen] == [True]


# -------------------------------------------------------------------------------------------- races


def test_thirty_claimers(store: DynamoDBStore) -> None:
    """Of thirty claimers one is the owner, and all see the same record."""
    barrier = threading.Barrier(30)

    def claim(_: int) -> Record:
        barrier.wait()
        return store.claim(make_ticket())

    with ThreadPoolExecutor(30) as pool:
        records = list(pool.map(claim, range(30)))
    assert {record.owner for record in records} == {stored(store, make_ticket()).owner}


def test_a_takeover_race(store: DynamoDBStore) -> None:
    """Of those that find a lapsed lease, one becomes the next owner, and only one reports the
    takeover.
    """
    store.claim(make_ticket())
    elapse(store, 31)
    barrier = threading.Barrier(10)

    def claim(_: int) -> Record:
        barrier.wait()
        return store.claim(make_ticket())

    with ThreadPoolExecutor(10) as pool:
        records = list(pool.map(claim, range(10)))
    assert {(record.owner, record.attempt) for record in records} == {
        (stored(store, make_ticket()).owner, 2)
    }
    assert [record.taken for record in records].count(True) == 1


@contextmanager
def between(store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch, act: Any) -> Iterator[None]:
    """Act once after a claim has read the record, before it takes it over."""
    takeover = store._takeover

    def interrupted(*given: Any) -> Any:
        monkeypatch.setattr(store, "_takeover", takeover)
        act()
        return takeover(*given)

    monkeypatch.setattr(store, "_takeover", interrupted)
    yield
    assert store._takeover == takeover, "no takeover"


def test_a_late_renewal_wins(store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that renews between our read and our write keeps the record."""
    first = make_ticket()
    store.claim(first)
    elapse(store, 31)
    with between(store, monkeypatch, lambda: store.renew([first])), asked(store) as requests:
        assert store.claim(make_ticket()).owner == first.owner
    assert requests == ["PutItem", "UpdateItem", "UpdateItem"]  # theirs is in the middle


def test_deleted_before_the_takeover(store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that DynamoDB deletes between our two steps begins again."""
    first, second = make_ticket(), make_ticket()
    complete(store, first)
    elapse(store, first.ttl + 1)
    boto, table = store.client.boto, store.schema.table
    with between(
        store,
        monkeypatch,
        lambda: boto.delete_item(TableName=table, Key=store.schema.key(first.id)),
    ):
        record = store.claim(second)
    assert (record.owner, record.attempt) == (second.owner, 1)


def test_who_always_comes_late(store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim gives up when others are faster each time."""
    first = make_ticket()
    store.claim(first)
    elapse(store, 31)
    takeover = store._takeover

    def overtaken(*given: Any) -> Any:
        change = takeover(*given)
        values = {"attempt": stored(store, first).attempt + 1}
        store.client.write(
            "update_item", **store.schema.change(first.id, values, seen={"owner": first.owner})
        )
        return change

    monkeypatch.setattr(store, "_takeover", overtaken)
    with pytest.raises(LostRace):
        store.claim(make_ticket())


# ----------------------------------------------------------------------------------- lost responses


def test_a_claim_whose_answer_is_lost(store: DynamoDBStore) -> None:
    """The retry of the put is refused because of our own first try, and finds its record."""
    ticket = make_ticket()
    with answered(store, LOST), asked(store) as requests:
        record = store.claim(ticket)
    assert requests == ["PutItem", "PutItem"]
    assert rules.read(record, ticket) == rules.Execute(attempt=1)


def test_a_takeover_whose_answer_is_lost(store: DynamoDBStore) -> None:
    """It still counts as a takeover."""
    store.claim(make_ticket())
    elapse(store, 31)
    ticket = make_ticket()
    with answered(store, None, LOST), asked(store) as requests:
        record = store.claim(ticket)
    assert requests == ["PutItem", "UpdateItem", "UpdateItem"]
    assert rules.read(record, ticket) == rules.Execute(attempt=2, takeover=True)


def test_a_settlement_whose_answer_is_lost(store: DynamoDBStore) -> None:
    """It is written twice, and counts."""
    ticket = make_ticket()
    store.claim(ticket)
    with answered(store, None, LOST):
        assert complete(store, ticket) is True
    assert stored(store, ticket).outcome == ANSWER


def test_renewals_whose_answer_is_lost(store: DynamoDBStore) -> None:
    """The second try renews what the first one has renewed."""
    tickets = [make_ticket(key=f"{number}") for number in range(2)]
    for ticket in tickets:
        store.claim(ticket)
    with answered(store, LOST):
        assert store.renew(tickets) == {ticket.owner for ticket in tickets}


# -------------------------------------------------------------------------------------------- renew


def test_two_owners_of_one_key(store: DynamoDBStore) -> None:
    """One call renews the current owner of a key whose late owner is in the same process."""
    late, owner = make_ticket(), make_ticket()
    store.claim(late)
    elapse(store, 31)
    store.claim(owner)
    other = make_ticket(key="other")
    store.claim(other)
    assert store.renew([late, owner, other]) == {owner.owner, other.owner}


def test_a_renewal_that_fails_takes_no_lease_of_others(store: DynamoDBStore) -> None:
    """Leases that were renewed before the server stopped responding are reported."""
    tickets = [make_ticket(key=f"{number}") for number in range(3)]
    for ticket in tickets:
        store.claim(ticket)
    with (
        answered(store, None, *["ProvisionedThroughputExceededException"] * 2),
        pytest.raises(StoreUnavailable) as raised,
    ):
        store.renew(tickets)
    assert raised.value.renewed == {tickets[0].owner}


@pytest.mark.parametrize("ttl", [None, "1893553445000", "1.5"])
def test_an_item_whose_time_to_live_is_not_ours(store: DynamoDBStore, ttl: str | None) -> None:
    """Its lease is renewed and it replays: only what deletes it needs the attribute."""
    ticket = make_ticket()
    store.claim(ticket)
    change: dict[str, Any] = (
        {"Action": "DELETE"} if ttl is None else {"Action": "PUT", "Value": {"N": ttl}}
    )
    store.client.boto.update_item(
        TableName=store.schema.table,
        Key=store.schema.key(ticket.id),
        AttributeUpdates={store.schema.names["ttl"]: change},
    )
    assert store.renew([ticket]) == {ticket.owner}
    assert complete(store, ticket)
    found = store.get(ticket.id)
    assert found is not None
    assert found.outcome == ANSWER


# ------------------------------------------------------------------------------------------- expiry


def test_the_ttl_attribute(store: DynamoDBStore) -> None:
    """The ttl attribute is a whole second, never before the expiry."""
    elapse(store, 0.25)
    ticket = make_ticket(ttl=50, lease=40)
    store.claim(ticket)
    expires_at = stored(store, ticket).expires_at.timestamp()
    assert expires_at < ttl(store) < expires_at + 1
    complete(store, ticket, ttl=500)
    assert ttl(store) == int(expires_at) + 450 + 1


def test_the_ttl_attribute_of_a_long_lease(store: DynamoDBStore) -> None:
    """DynamoDB does not delete a running record, however often its lease is renewed."""
    ticket = make_ticket(ttl=50, lease=100)
    store.claim(ticket)
    begun = int(store._clock().timestamp())
    assert ttl(store) == begun + 100
    elapse(store, 90)
    store.renew([ticket])
    record = stored(store, ticket)
    assert record.lease_until.timestamp() == begun + 190
    assert ttl(store) >= begun + 190


def test_the_ttl_attribute_of_a_long_lease_that_is_passed_on(store: DynamoDBStore) -> None:
    """DynamoDB does not delete a record that resumes under such a lease."""
    first, ticket = make_ticket(ttl=50, lease=10), make_ticket(ttl=50, lease=100)
    assert store.settle(ticket, conclusions.handover(store.claim(first), ticket))
    assert ttl(store) == int(stored(store, ticket).lease_until.timestamp())


def test_the_ttl_attribute_after_a_renewal(store: DynamoDBStore) -> None:
    """A short lease does not move the deletion."""
    ticket = make_ticket(ttl=5000, lease=10)
    store.claim(ticket)
    expires_at = ttl(store)
    elapse(store, 9)
    store.renew([ticket])
    assert ttl(store) == expires_at


def test_expired_and_not_yet_deleted(store: DynamoDBStore) -> None:
    """An expired record that DynamoDB has not yet deleted counts as absent."""
    old = make_ticket(ttl=50)
    complete(store, old)
    elapse(store, 50)
    new = make_ticket(body=b"other", ttl=70)
    record = store.claim(new)
    assert (record.owner, record.attempt, record.outcome) == (new.owner, 1, None)
    assert ttl(store) == int(store._clock().timestamp()) + 70


# ---------------------------------------------------------------------------------------- responses


@pytest.mark.parametrize(
    ("size", "text", "kept"),
    [
        (1_000_000, True, True),  # deflates to a few KB
        (358_000, False, True),
        (358_500, False, False),
        (5_000_000, False, False),
    ],
)
def test_large_answers(store: DynamoDBStore, size: int, text: bool, kept: bool) -> None:
    """A response that fits into an item is kept; otherwise the work is done, but its response was
    not stored.
    """
    outcome = ANSWER._replace(
        body=b"text" * (size // 4) if text else random.Random(1).randbytes(size)
    )
    ticket = make_ticket()
    assert complete(store, ticket, outcome) is True
    record = store.claim(make_ticket())
    assert record.status is Status.COMPLETED
    assert record.outcome == (outcome if kept else outcome._replace(body=MISSING))


def test_the_size_of_an_item(store: DynamoDBStore) -> None:
    """A claim is one write unit: the item without its response is under 1 KB, by our count and
    DynamoDB's.
    """
    store.claim(
        make_ticket(
            scope="user:auth.user:12345678", key="k" * 36, path="/api/v1/orders/12345678/charges/"
        )
    )
    assert items._size(item(store)) < 600


def test_what_is_in_an_item(store: DynamoDBStore) -> None:
    """An item is readable in a console: words as words, deadlines as numbers."""
    ticket = make_ticket()
    store.claim(ticket)
    assert item(store) == {
        "id": {"S": ticket.id.hex},
        "scope": {"S": "user:1"},
        "key": {"S": "key-1"},
        "digest": {"B": ticket.digest},
        "status": {"S": "running"},
        "owner": {"S": ticket.owner.hex},
        "operation": {"S": first_operation(ticket).hex},
        "attempt": {"N": "1"},
        "guarantee": {"S": "lease"},
        "lease_until": {"N": "1893456030000000"},
        "created_at": {"N": "1893456000000000"},
        "expires_at": {"N": "1893542400000000"},
        "secret_id": {"S": "5ec4e71d"},
        "method": {"S": "POST"},
        "path": {"S": "/api/charges/"},
        "request_id": {"S": ""},
        "ttl": {"N": "1893542400"},
    }


def test_a_foreign_item(store: DynamoDBStore) -> None:
    """A foreign item is neither judged nor overwritten."""
    ticket = make_ticket()
    store.client.boto.put_item(
        TableName=store.schema.table, Item={**store.schema.key(ticket.id), "x": {"N": "1"}}
    )
    for ask in (lambda: store.claim(ticket), lambda: store.get(ticket.id)):
        with pytest.raises(RecordUnreadable):
            ask()
    assert "x" in item(store)


def test_a_damaged_answer(store: DynamoDBStore) -> None:
    """It is not returned, and its work does not run again; the rest of the item can be read, and be
    expired.
    """
    ticket = make_ticket()
    run = rules.read(store.claim(ticket), ticket)
    assert isinstance(run, rules.Execute)
    settlement = conclusions.settlement(
        conclusions.SettledState.COMPLETED,
        ticket,
        run,
        fence=None,
        outcome=Outcome(status=201, body=b"{}"),
        ttl=None,
    )
    assert settlement is not None
    assert store.settle(ticket, settlement)
    for damaged in (b"\x03", b"\x01" * 40):
        change = store.schema.change(ticket.id, {"outcome": damaged}, seen={"owner": ticket.owner})
        store.client.write("update_item", **change)
        another = make_ticket()
        assert rules.read(store.claim(another), another) == rules.Unreadable()
    again = make_ticket()
    assert store.change(ticket.id, expired_now, audit=lambda _: None) is Intervention.DONE
    assert rules.read(store.claim(again), again) == rules.Execute(attempt=1)


def test_completed_at_stays(store: DynamoDBStore) -> None:
    """A record that is settled again, as by an operator's expiry, keeps the time when its work was
    done.
    """
    ticket = make_ticket()
    complete(store, ticket)
    done, deleted = stored(store, ticket).completed_at, ttl(store)
    elapse(store, 60)
    assert store.change(ticket.id, expired_now, audit=lambda record: None) is Intervention.DONE
    record = stored(store, ticket)
    assert (record.completed_at, record.expires_at, record.outcome) == (
        done,
        store._clock(),
        ANSWER,
    )
    assert ttl(store) == deleted


# ------------------------------------------------------------------------------------------ outages


def test_throttled(store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """boto tries once more, after a moment; then the store is unavailable."""
    naps: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time.sleep", naps.append)
    ticket = make_ticket()
    with answered(store, "ThrottlingException"), asked(store) as requests:
        assert store.claim(ticket).owner == ticket.owner
    assert requests == ["PutItem", "PutItem"]
    assert len(naps) == 1
    assert 0 <= naps[0] <= PAUSE
    with (
        answered(store, *["ProvisionedThroughputExceededException"] * 2),
        pytest.raises(StoreUnavailable) as caught,
    ):
        store.claim(ticket)
    assert "ProvisionedThroughputExceeded" in str(caught.value.__cause__)


@pytest.mark.parametrize("status", [400, 500, 503])
def test_no_pause_is_long(status: int) -> None:
    """No pause is long, whatever a failing server, or boto's random jitter, requests."""
    later = {"x-amz-retry-after": "4000"}
    document = b'{"__type": "ThrottlingException"}'
    with pretending(status, later, document) as endpoint:
        store = make_store(endpoint)
        for _ in range(3):
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable):
                store.get(uuid4())
            assert time.monotonic() - begun < 5
        store.client.boto.close()


def verbs(store: DynamoDBStore) -> list[Callable[[], object]]:
    """Return a call of every verb that a request or the heartbeat needs."""
    ticket = make_ticket()
    settlement = conclusions.settlement(
        SettledState.BOUND, ticket, rules.Execute(attempt=1), fence=None, outcome=None, ttl=None
    )
    assert settlement is not None
    return [
        lambda: store.claim(ticket),
        lambda: store.settle(ticket, settlement),
        lambda: store.renew([ticket]),
        lambda: store.renew([ticket, make_ticket(key="other")]),
        lambda: store.get(ticket.id),
    ]


@pytest.mark.parametrize("document", [b"", b"{}", b'{"status": "ok"}', b"<html></html>"])
def test_a_response_of_another_server(document: bytes) -> None:
    """A proxy that returns 200 has stored nothing: no verb mistakes its response for DynamoDB's,
    which may be empty.
    """
    with pretending(200, {"Content-Type": "application/json"}, document) as endpoint:
        store = make_store(endpoint)
        for verb in verbs(store):
            with pytest.raises(StoreUnavailable):
                verb()
        store.client.boto.close()


@contextmanager
def pretending(status: int, headers: Mapping[str, str], document: bytes) -> Iterator[str]:
    """Yield the address of a server that gives every request one response."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(document))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(document)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "ValidationException", "UnrecognizedClientException"]
)
def test_refused(store: DynamoDBStore, code: str) -> None:
    """After any error of DynamoDB the store is unavailable; the cause is chained for the log."""
    for verb in verbs(store):
        with answered(store, code), pytest.raises(StoreUnavailable) as caught:
            verb()
        assert code in str(caught.value.__cause__)


def test_no_table(dynamodb: str) -> None:
    """The error says what to type."""
    store = make_store(dynamodb)
    with pytest.raises(StoreUnavailable, match=r"manage\.py idempotency_stores create"):
        store.claim(make_ticket())
    store.client.boto.close()


def test_no_server_listens() -> None:
    """A refused connection is an outage."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    store = make_store(f"http://127.0.0.1:{port}", config=Config(retries={"total_max_attempts": 1}))
    with pytest.raises(StoreUnavailable):
        store.get(uuid4())
    store.client.boto.close()


def test_no_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Anything that boto3 misses at the start also makes the store unavailable."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreUnavailable) as caught:
        DynamoDBStore().get(uuid4())
    assert "region" in str(caught.value.__cause__)


@contextmanager
def frozen() -> Iterator[str]:
    """Yield the address of a server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_frozen_server() -> None:
    """By default it costs about a second: two tries of half a second, without a pause in
    between.
    """
    with frozen() as endpoint:
        store = make_store(endpoint, timeout=0.5)
        with asked(store) as requests:
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable):
                store.claim(make_ticket())
            assert 0.9 < time.monotonic() - begun < 5
        assert requests == ["PutItem", "PutItem"]
        store.client.boto.close()


def test_the_defaults_of_the_client() -> None:
    """Values in a project's own config take precedence, and the other defaults remain."""
    config = DynamoDBStore(region_name="eu-central-1").client.boto.meta.config
    assert (config.connect_timeout, config.read_timeout) == (0.5, 0.5)
    assert config.retries == {"mode": "standard", "total_max_attempts": 2}
    own = Config(read_timeout=3, retries={"mode": "adaptive", "total_max_attempts": 1})
    with frozen() as endpoint:
        store = make_store(endpoint, timeout=0.1, config=own.merge(Config(read_timeout=0.1)))
        config = store.client.boto.meta.config
        assert (config.connect_timeout, config.read_timeout) == (0.1, 0.1)
        assert config.retries == {"mode": "adaptive", "total_max_attempts": 1}
        with asked(store) as requests, pytest.raises(StoreUnavailable):
            store.claim(make_ticket())
        assert requests == ["PutItem"]
        store.client.boto.close()


# ------------------------------------------------------------------------------------------ clients


def test_a_client_of_ones_own(store: DynamoDBStore) -> None:
    """A given client is used unchanged."""
    own = DynamoDBStore(table=store.schema.table, client=store.client.boto)
    ticket = make_ticket()
    assert own.claim(ticket).owner == ticket.owner
    assert own.client.boto is own.client.patient() is store.client.boto


def test_one_client_for_all_threads(dynamodb: str) -> None:
    """The client is built at first use, once."""
    store = make_store(dynamodb)
    assert store.client._built is None
    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(lambda _: store.client.boto, range(8)))
    assert len(clients) == 1


def test_a_forked_process() -> None:
    """It builds its own client: connections are not shared."""
    script = """
import os
from django_idempotency.stores.dynamodb import DynamoDBStore
from django_idempotency.stores.dynamodb.client import PAUSE
store = DynamoDBStore(region_name="eu-central-1")
parents = store.client.boto
child = os.fork()
if not child:
    os._exit(0 if store.client._built is None and store.client.boto is not parents else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert store.client.boto is parents
"""
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONWARNINGS": ""},
    )


def test_without_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store says what to install."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(
        ImproperlyConfigured, match=r'pip install "./django-idempotency\[dynamodb\]"'
    ):
        DynamoDBStore()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attributes": {"colour": "c"}}, "'colour'"),
        ({"attributes": {"owner": "x", "status": "x"}}, "'x'"),
        ({"key_attr": "x", "attributes": {"ttl": "x"}}, "'x'"),
        ({"attributes": {"ttl": "owner", "path": "idempotency_owner"}}, "'idempotency_owner'"),
        ({"static_pk_value": "x"}, "sort_key_attr"),
        *(
            ({"timeout": value}, "such as 0.5")
            for value in (0, -1, 61, float("nan"), None, True, "0.5")
        ),
    ],
)
def test_impossible_options(options: dict[str, Any], said: str) -> None:
    """Impossible options are refused at the start."""
    with pytest.raises(ValueError, match=said):
        DynamoDBStore(**options)


def test_our_names_yield(dynamodb: str) -> None:
    """A project may give an attribute or a key the name of another of ours, as a table that it has
    already prescribes.
    """
    store = make_table(
        make_store(dynamodb, key_attr="key", attributes={"ttl": "expires_at", "outcome": "path"})
    )
    ticket = make_ticket()
    assert complete(store, ticket)
    found = store.client.boto.get_item(
        TableName=store.schema.table, Key=store.schema.key(ticket.id)
    )["Item"]
    for name in ("key", "expires_at", "path"):
        assert {name, f"idempotency_{name}"} <= found.keys()
    known = store.get(ticket.id)
    assert known is not None
    assert (known.key, known.path, known.outcome) == (ticket.key, ticket.path, ANSWER)
    assert int(found["expires_at"]["N"]) == items.deleted_at(known.expires_at)


def test_another_table_of_a_live_store(dynamodb: str) -> None:
    """It counts from the next request, and its records are elsewhere."""
    table, other = made_table(dynamodb), made_table(dynamodb)
    store = make_store(dynamodb, table=table)
    ticket, before = make_ticket(), store.location
    store.claim(ticket)
    store.schema.table = other
    assert (store.get(ticket.id), store.location == before) == (None, False)
    store.schema.table = table
    assert (store.get(ticket.id) is not None, store.location) == (True, before)


def test_an_endpoint_without_a_host() -> None:
    """The settings are at fault, not the server."""
    with pytest.raises(ImproperlyConfigured, match="nowhere"):
        DynamoDBStore(region_name="eu-central-1", endpoint_url="nowhere").get(uuid4())


def test_a_refused_write_whose_error_is_of_other_classes(
    dynamodb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore makes a client's classes of exceptions at its first error, without a lock: two
    threads may have two sets of them. A duplicate is none the less no outage.
    """
    table = made_table(dynamodb, {})
    for store in opened(dynamodb, table):
        ticket = make_ticket()
        store.claim(ticket)
        client = store.client.boto
        held = client.exceptions
        error = type("ConditionalCheckFailedException", (held.ClientError,), {})
        monkeypatch.setattr(held, "ConditionalCheckFailedException", error, raising=False)
        assert store.claim(make_ticket()).owner == ticket.owner
