"""What a call does, on every library."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest
from asgiref.sync import async_to_sync
from django.db import InterfaceError, connection, transaction
from django.utils.datastructures import CaseInsensitiveMapping
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from django_idempotency.contrib.client import outgoing
from django_idempotency.contrib.client.exchange import RetryBudget
from django_idempotency.contrib.client.ledger import Ledger
from django_idempotency.contrib.client.messages import unpack_answer
from django_idempotency.contrib.client.models import OutgoingCall
from django_idempotency.contrib.client.providers import Provider as ProviderOptions
from django_idempotency.contrib.client.requests import IdempotentAdapter
from django_idempotency.contrib.client.rules import CallState
from django_idempotency.contrib.deadlines.headers import left
from django_idempotency.engine.deadlines import CALLER_ENDS, deadline
from django_idempotency.errors import (
    CallChanged,
    CallHeld,
    CallInTransaction,
    CallResponseNotStored,
    CallWithoutName,
    ConfigurationError,
    DeadlinePassed,
    HeldForPerson,
    StepNamesOneCall,
    StreamedRequest,
)
from django_idempotency.runtime.current_step import CURRENT_STEP, RunningStep
from django_idempotency.stores.base import utcnow

from ...support.meters import RecordingMeter, installed
from .callers import BROKEN as BROKEN_ERRORS
from .callers import Reply, client, with_async_httpx, with_httpx
from .provider import BROKEN, LOST, Failure, Provider

Call = Callable[..., Reply]
pytestmark = pytest.mark.any_database
AMOUNT = {"amount": 2499}


def row() -> OutgoingCall:
    return OutgoingCall.objects.get()


def test_first(call: Call, provider: Provider) -> None:
    """The key is made, sent and stored; the response is the provider's."""
    reply = call("POST", f"{provider.url}/charges?expand=card", "order-17", json=AMOUNT)
    assert (reply.status, reply.body) == (200, {"id": "ch_1", "got": AMOUNT})
    assert reply.headers["content-type"] == "application/json"
    found = row()
    assert provider.keys == [found.key]
    assert UUID(found.key).version == 4
    assert (found.provider, found.name, found.method) == ("fake", "order-17", "POST")
    assert found.url == f"{provider.url}/charges"
    assert (found.state, found.attempts, found.response_status, found.reference) == (
        "succeeded",
        1,
        200,
        "req_1",
    )
    assert reply.facts is not None
    assert (reply.facts.key, reply.facts.attempts, reply.facts.stored) == (found.key, 1, False)
    assert (reply.facts.replayed, reply.facts.reference) == (False, "req_1")


def test_again(call: Call, provider: Provider) -> None:
    """The stored response is returned, equal, and nothing is sent. A JSON body counts by value."""
    first = call("POST", provider.url, "order-17", json={"amount": 1, "currency": "eur"})
    again = call("POST", provider.url, "order-17", json={"currency": "eur", "amount": 1})
    assert len(provider.seen) == 1
    assert (again.status, again.body) == (first.status, first.body)
    wire = {"set-cookie", "server", "date", "connection", "content-length"}
    assert {k: v for k, v in again.headers.items() if k not in wire} == {
        k: v for k, v in first.headers.items() if k not in wire
    }
    assert "set-cookie" in first.headers
    assert "set-cookie" not in again.headers
    assert again.facts is not None
    assert again.facts.stored
    assert again.facts.reference == "req_1"


@pytest.mark.parametrize(
    "failure",
    [
        Failure(status=503),
        Failure(status=409),
        Failure(status=429, headers={"Retry-After": "0"}),
        Failure(status=400, headers={"Stripe-Should-Retry": "true"}),
        BROKEN,
        LOST,
    ],
    ids=["503", "409", "429", "told to", "broken", "lost"],
)
def test_retried(call: Call, provider: Provider, failure: Failure) -> None:
    """The same key is sent again, and there is one effect."""
    provider.plan = [failure, failure]
    reply = call("POST", provider.url, "order-17", json=AMOUNT)
    assert (reply.status, reply.body["id"]) == (200, "ch_1")
    assert len(set(provider.keys)) == 1
    assert len(provider.seen) == 3
    assert set(provider.effects.values()) == {1}
    assert (row().state, row().attempts) == ("succeeded", 3)
    assert reply.facts is not None
    assert reply.facts.replayed is (failure is LOST)
    if failure is LOST:
        assert row().reference == "req_first"


@pytest.mark.parametrize(
    "failure",
    [
        Failure(status=402),
        Failure(status=500, headers={"Stripe-Should-Retry": "false"}),
        Failure(status=404),
    ],
    ids=["402", "told not to", "404"],
)
def test_not_retried(call: Call, provider: Provider, failure: Failure) -> None:
    provider.plan = [failure]
    assert call("POST", provider.url, "order-17", json=AMOUNT).status == failure.status
    assert len(provider.seen) == 1
    assert row().state == ("unknown" if failure.status == 500 else "refused")


def test_given_up(call: Call, provider: Provider) -> None:
    """After the last retry the caller gets the response, and the next process goes on with the same
    key.
    """
    provider.plan = [Failure(status=503, body=b'{"why": "down"}')] * 4
    reply = call("POST", provider.url, "order-17", json=AMOUNT)
    assert (reply.status, reply.body) == (503, {"why": "down"})
    assert (row().state, row().attempts, row().response) == ("unknown", 4, None)
    assert call("POST", provider.url, "order-17", json=AMOUNT).status == 200
    assert len(set(provider.keys)) == 1
    assert (row().state, row().attempts) == ("succeeded", 5)


def test_broken_to_the_end(call: Call, provider: Provider) -> None:
    provider.plan = [LOST] * 4
    with pytest.raises(BROKEN_ERRORS):
        call("POST", provider.url, "order-17", json=AMOUNT)
    assert (row().state, row().attempts) == ("unknown", 4)


def test_nothing_listens(call: Call, provider: Provider) -> None:
    """A call that never left, as far as can be seen, waits for nobody, and keeps its key: something
    may have sent it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
    with pytest.raises(BROKEN_ERRORS):
        call("POST", url, "order-17", json=AMOUNT)
    assert (row().state, row().attempts) == ("refused", 4)
    with pytest.raises(CallChanged):
        call("POST", provider.url, "order-17", json=AMOUNT)


def test_refused(call: Call, provider: Provider) -> None:
    """A refusal frees neither name nor key: a transport beneath may have sent it before.

    The same may come again.
    """
    provider.plan = [Failure(status=402)]
    call("POST", provider.url, "order-17", json={"card": "declined"})
    with pytest.raises(CallChanged):
        call("POST", provider.url, "order-17", json={"card": "good"})
    assert call("POST", provider.url, "order-17", json={"card": "declined"}).status == 200
    assert len(set(provider.keys)) == 1


def test_refused_after_an_unknown_attempt(call: Call, provider: Provider) -> None:
    """A refusal proves nothing about the attempt before it: only the same request may follow, with
    the same key.
    """
    provider.plan = [LOST, Failure(status=404)]
    assert call("DELETE", provider.url, "gone-17").status == 404
    assert row().state == "unknown"
    with pytest.raises(CallChanged):
        call("DELETE", f"{provider.url}/other", "gone-17")


def test_refused_twice(call: Call, provider: Provider) -> None:
    """A credential that is refused each time does not become an unknown outcome."""
    provider.plan = [Failure(status=401), Failure(status=401)]
    for _ in range(2):
        assert call("POST", provider.url, "order-17", json=AMOUNT).status == 401
        assert row().state == "refused"


def test_a_redirect_may_be_a_success(call: Call, provider: Provider) -> None:
    """303 after a POST may say that it is done: the name is sent with the same key, and another
    request is refused.
    """
    provider.plan = [Failure(status=303, works=True)]
    assert call("POST", provider.url, "order-17", json=AMOUNT).status == 303
    assert row().state == "refused"
    with pytest.raises(CallChanged):
        call("POST", f"{provider.url}/elsewhere", "order-17", json=AMOUNT)
    assert call("POST", provider.url, "order-17", json=AMOUNT).body["id"] == "ch_1"
    assert set(provider.effects.values()) == {1}
    assert len(provider.effects) == 1


def test_a_redirect_is_not_followed(db: None, provider: Provider) -> None:
    """The next address is another request, whatever the client follows otherwise."""
    provider.plan = [Failure(status=307, headers={"Location": "/elsewhere"})]
    with client(follow_redirects=True) as made, outgoing("order-17"):
        assert made.post(provider.url, json=AMOUNT).status_code == 307
    assert len(provider.seen) == 1


@pytest.mark.django_db(transaction=True)
def test_a_database_that_fails_after_the_response(call: Call, provider: Provider) -> None:
    """The caller gets the response of a charge that was made, and the call stays open."""

    def closed(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("UPDATE"):
            raise InterfaceError("connection already closed")
        return execute(sql, *rest)

    with connection.execute_wrapper(closed):
        assert call("POST", provider.url, "order-17", json=AMOUNT).body["id"] == "ch_1"
    assert row().state == "open"


def test_a_response_that_cannot_be_sealed(
    call: Call, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call has succeeded nevertheless, and is never sent again."""

    def broken(*args: Any) -> bytes:
        raise RuntimeError("no key")

    monkeypatch.setattr("django_idempotency.contrib.client.ledger.pack_answer", broken)
    assert call("POST", provider.url, "order-17", json=AMOUNT).body["id"] == "ch_1"
    assert (row().state, row().response) == ("succeeded", None)
    with pytest.raises(CallResponseNotStored):
        call("POST", provider.url, "order-17", json=AMOUNT)
    assert len(provider.seen) == 1


@pytest.mark.parametrize(("status", "state"), [(503, "unknown"), (429, "refused")])
def test_a_pause_that_outlasts_the_deadline(
    call: Call, provider: Provider, monkeypatch: pytest.MonkeyPatch, status: int, state: str
) -> None:
    """The caller gets an error, so the call does not stay open."""
    now = [0.0]

    class Late(RetryBudget):
        def spend(self) -> bool:
            now[0] += 60
            return True

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: None)
    monkeypatch.setattr("django_idempotency.contrib.client.exchange.time", clock)
    provider.plan = [Failure(status=status)]
    with pytest.raises(DeadlinePassed):
        call("POST", provider.url, "order-17", json=AMOUNT, terms={"budget": Late()})
    assert len(provider.seen) == 1
    assert row().state == state


@pytest.mark.parametrize("retries", [2, Retry(total=None, connect=1)])
def test_an_adapter_that_retries_by_itself(retries: Any) -> None:
    """Its attempts are not written down, and it would say "not sent" of the last one only."""
    with pytest.raises(ConfigurationError, match="max_retries=0"):
        IdempotentAdapter("fake", HTTPAdapter(max_retries=retries))
    IdempotentAdapter("fake", HTTPAdapter(max_retries=Retry(total=False)))


@pytest.mark.parametrize("change", ["body", "url", "method"])
def test_another_request_under_the_name(call: Call, provider: Provider, change: str) -> None:
    call("POST", provider.url, "order-17", json=AMOUNT)
    with pytest.raises(CallChanged, match="further call"):
        call(
            "PUT" if change == "method" else "POST",
            f"{provider.url}/other" if change == "url" else provider.url,
            "order-17",
            json={"amount": 9900} if change == "body" else AMOUNT,
        )
    assert len(provider.seen) == 1


def test_names_are_exact(call: Call, provider: Provider) -> None:
    """`order-17` is not `Order-17`, on no database."""
    for name in ("order-17", "Order-17", "order-17 ", "ördér-17"):
        call("POST", provider.url, name, json=AMOUNT)
    assert len(set(provider.keys)) == 4


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b"])
def test_invalid_names(call: Call, provider: Provider, name: str) -> None:
    with pytest.raises(ValueError, match="1 to 255 characters"):
        call("POST", provider.url, name, json=AMOUNT)


def test_the_callers_own_key(call: Call, provider: Provider) -> None:
    """The first one wins and stays, since SDKs make another key at each call.

    Without a name it is the name, too.
    """
    call("POST", provider.url, "order-17", json=AMOUNT, headers={"Idempotency-Key": "mine"})
    call("POST", provider.url, "order-17", json=AMOUNT, headers={"Idempotency-Key": "another"})
    call("POST", provider.url, json=AMOUNT, headers={"Idempotency-Key": "unnamed"})
    assert provider.keys == ["mine", "unnamed"]
    assert set(OutgoingCall.objects.values_list("name", flat=True)) == {"order-17", "unnamed"}


def test_another_header(call: Call, provider: Provider, providers: dict[str, Any]) -> None:
    providers["HEADER"] = "PayPal-Request-Id"
    call("POST", provider.url, "order-17", json=AMOUNT)
    assert provider.seen[0][2]["paypal-request-id"] == row().key
    assert provider.keys == [None]


@pytest.mark.parametrize("header", ["Request-Timeout", "X-Request-Deadline", "Our-Deadline"])
def test_the_deadline_is_handed_on(
    call: Call,
    provider: Provider,
    providers: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    header: str,
) -> None:
    """Each attempt says how long it is waited for, as seconds or as Unix time: what is left of the
    block, not of the client.
    """
    past, now = [0.0], 0 if header == "Request-Timeout" else 1_800_000_000

    class Late(RetryBudget):
        def spend(self) -> bool:
            past[0] += 5
            return True

    clock = SimpleNamespace(
        monotonic=lambda: past[0], sleep=lambda seconds: None, time=lambda: 1_800_000_000 + past[0]
    )
    monkeypatch.setattr("django_idempotency.contrib.client.exchange.time", clock)
    monkeypatch.setattr("django_idempotency.contrib.client.providers.time", clock)
    providers["DEADLINE_HEADER"] = header
    provider.plan = [Failure(status=503)]
    with deadline(20):
        call("POST", provider.url, "order-17", json=AMOUNT, terms={"budget": Late()})
    first, second = (float(headers[header.lower()]) for _, _, headers in provider.seen)
    assert now + 19 < first <= now + 20
    # The instant is the same, and the time that is left is shorter.
    assert second - first == pytest.approx(0 if now else -5, abs=0.002)


def test_without_a_deadline_around_it(
    call: Call, provider: Provider, providers: dict[str, Any]
) -> None:
    """A client's own limit counts; and our receiver reads what is sent."""
    providers["DEADLINE_HEADER"] = "X-Request-Deadline"
    call("POST", provider.url, "order-17", json=AMOUNT, terms={"deadline": 7})
    sent = CaseInsensitiveMapping(provider.seen[0][2])
    read = left(sent, datetime.now(timezone.utc))
    assert read is not None
    assert 0 < read <= 7


def test_no_deadline_is_handed_on_unless_asked_for(call: Call, provider: Provider) -> None:
    with deadline(20):
        call("POST", provider.url, "order-17", json=AMOUNT)
    assert not any("deadline" in name or "timeout" in name for name in provider.seen[0][2])


@pytest.mark.parametrize("seconds", [-0.2, 0, 1e-9])
def test_a_deadline_that_passes_as_it_is_sent(seconds: float) -> None:
    """It is a number that receivers read, whose time is over."""
    called = ProviderOptions(
        alias="fake", lifetime=timedelta(hours=1), deadline_header="Request-Timeout"
    )
    sent = CaseInsensitiveMapping(called.headers("k", seconds))
    assert left(sent, utcnow()) == 0


def test_the_deadline_of_its_own_caller() -> None:
    """What a request says of its client is handed on, if that stops waiting earlier."""
    called = ProviderOptions(
        alias="fake", lifetime=timedelta(hours=1), deadline_header="Request-Timeout"
    )
    token = CALLER_ENDS.set(time.time() + 5)
    try:
        sent = [float(called.headers("k", seconds)["Request-Timeout"]) for seconds in (30.0, 1.0)]
    finally:
        CALLER_ENDS.reset(token)
    assert 4 < sent[0] <= 5
    assert sent[1] == 1


def test_unnamed(call: Call, provider: Provider) -> None:
    """It is refused, since nobody could repeat it; or it passes once, as it is."""
    with pytest.raises(CallWithoutName, match="outgoing"):
        call("POST", provider.url, json=AMOUNT)
    assert provider.seen == []
    provider.plan = [Failure(status=503)]
    assert call("POST", provider.url, json=AMOUNT, terms={"require_names": False}).status == 503
    assert provider.keys == [None]
    assert not OutgoingCall.objects.exists()


def test_safe_methods_pass(call: Call, provider: Provider) -> None:
    assert call("GET", provider.url, "order-17").status == 200
    assert provider.keys == [None]
    assert not OutgoingCall.objects.exists()


def test_streams(call: Call, provider: Provider) -> None:
    """A body that can be read once cannot be sent twice."""
    if "async" in str(call.__class__).lower() or hasattr(call, "awaitable"):

        async def achunks() -> Any:
            yield b"{}"

        body = {"content": achunks()}
    else:

        def chunks() -> Iterator[bytes]:
            yield b"{}"

        body = {"data" if call.__name__ == "with_requests" else "content": chunks()}
    with pytest.raises(StreamedRequest, match="pass bytes"):
        call("POST", provider.url, "order-17", **body)
    assert provider.seen == []


def test_in_a_transaction(call: Call, provider: Provider) -> None:
    """Its row could be rolled back after the money has gone."""
    with pytest.raises(CallInTransaction, match="on_commit"), transaction.atomic():
        call("POST", provider.url, "order-17", json=AMOUNT)
    assert provider.seen == []


def test_on_commit(call: Call, provider: Provider, django_capture_on_commit_callbacks: Any) -> None:
    """The advice of the error works."""
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        transaction.on_commit(lambda: call("POST", provider.url, "order-17", json=AMOUNT))
    assert row().state == "succeeded"


def test_held(call: Call, provider: Provider) -> None:
    """After the provider's lifetime nothing is sent: it would be another charge."""
    provider.plan = [LOST] * 4
    with pytest.raises(BROKEN_ERRORS):
        call("POST", provider.url, "order-17", json=AMOUNT)
    OutgoingCall.objects.update(first_sent=utcnow() - timedelta(hours=24))
    provider.forgets = True
    for _ in range(2):
        with pytest.raises(CallHeld, match="in the admin") as caught:
            call("POST", provider.url, "order-17", json=AMOUNT)
        assert isinstance(caught.value, HeldForPerson)
    assert row().state == "held"
    assert len(provider.seen) == 4


def test_large_responses_are_not_stored(
    call: Call, provider: Provider, providers: dict[str, Any]
) -> None:
    providers["MAX_BODY"] = 10
    assert call("POST", provider.url, "order-17", json=AMOUNT).body["id"] == "ch_1"
    assert (row().state, row().response) == ("succeeded", None)
    with pytest.raises(CallResponseNotStored):
        call("POST", provider.url, "order-17", json=AMOUNT)
    assert len(provider.seen) == 1


def test_retry_after_beyond_the_deadline(call: Call, provider: Provider) -> None:
    """Nobody waits in vain: the response is returned at once."""
    provider.plan = [Failure(status=429, headers={"Retry-After": "31"})]
    assert call("POST", provider.url, "order-17", json=AMOUNT).status == 429
    assert len(provider.seen) == 1
    assert row().state == "refused"


def test_the_deadline_of_the_host(call: Call, provider: Provider) -> None:
    with deadline(0), pytest.raises(DeadlinePassed):
        call("POST", provider.url, "order-17", json=AMOUNT)
    assert not OutgoingCall.objects.exists()
    provider.plan = [Failure(status=429, headers={"Retry-After": "8"})]
    with deadline(5):
        assert call("POST", provider.url, "order-17", json=AMOUNT).status == 429


def test_a_slow_provider(call: Call, provider: Provider) -> None:
    """An attempt takes no longer than what is left, whatever timeout its client has."""
    slow = Failure(works=True, arrived=threading.Event(), proceed=threading.Event())
    provider.plan = [slow]
    with pytest.raises(BROKEN_ERRORS):
        call("POST", provider.url, "order-17", json=AMOUNT, timeout=20, terms={"deadline": 0.3})
    assert slow.proceed is not None
    slow.proceed.set()
    assert row().state == "unknown"


def test_the_budget_ends_retries(call: Call, provider: Provider) -> None:
    provider.plan = [Failure(status=503)] * 100
    for number in range(20):
        call("POST", provider.url, f"order-{number}", json=AMOUNT)
    assert len(provider.seen) == 20 + 10


def test_dripped_bytes(call: Call, provider: Provider) -> None:
    """Each byte comes in time, and all of them do not."""
    provider.plan = [Failure(status=200, body=b" " * 200, drips=0.05)]
    began = time.monotonic()
    with pytest.raises(BROKEN_ERRORS):
        call("POST", provider.url, "order-17", json=AMOUNT, terms={"deadline": 0.4})
    assert time.monotonic() - began < 5
    assert row().state == "unknown"


def test_a_header_hides_no_success(call: Call, provider: Provider) -> None:
    provider.plan = [
        Failure(status=201, headers={"Retry-After": "Mon, 23 Nov 2026 12:00:30 +9999999999"})
    ]
    assert call("POST", provider.url, "order-17", json=AMOUNT).status == 201
    assert row().state == "succeeded"


# ----------------------------------------------------------------------------- what leaves the call


async def _never(request: httpx.Request) -> httpx.Response:
    await asyncio.sleep(60)
    raise AssertionError


async def _busy(request: httpx.Request) -> httpx.Response:
    return httpx.Response(429, headers={"Retry-After": "8"})


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("respond", "state"), [(_never, "unknown"), (_busy, "refused")], ids=["sent", "pausing"]
)
def test_cut(providers: dict[str, Any], respond: Any, state: str) -> None:
    """A caller that stops waiting has got an error: its call does not stay open, to be sent when
    nobody expects it.
    """

    async def cut() -> None:
        terms = {"transport": httpx.MockTransport(respond)}
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(
                with_async_httpx("POST", "http://x", "order-17", json=AMOUNT, terms=terms), 0.2
            )

    async_to_sync(cut)()
    assert (row().state, row().attempts) == (state, 1)


@pytest.mark.django_db
def test_cut_while_it_is_written_down(
    providers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is committed, and nothing was sent: it ends."""
    start = Ledger.start

    async def cut() -> None:
        loop = asyncio.get_running_loop()
        sent: list[httpx.Request] = []
        terms = {"transport": httpx.MockTransport(sent.append)}  # type: ignore[arg-type]
        task = loop.create_task(
            with_async_httpx("POST", "http://x", "order-17", json=AMOUNT, terms=terms)
        )

        def cutting(self: Ledger) -> Any:
            started = start(self)
            loop.call_soon_threadsafe(task.cancel)
            return started

        monkeypatch.setattr(Ledger, "start", cutting)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sent == []

    async_to_sync(cut)()
    assert row().state == "refused"


@pytest.mark.django_db
def test_interrupted(providers: dict[str, Any]) -> None:
    def interrupt(request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), client(transport=httpx.MockTransport(interrupt)) as made:
        made.post("http://x", json=AMOUNT, extensions={"idempotency": "order-17"})
    assert row().state == "unknown"


# ---------------------------------------------------------------------- what a client of httpx adds


class Tokens(httpx.Auth):
    """OAuth's client credentials: each request asks for a token first."""

    requires_response_body = True

    def auth_flow(self, request: httpx.Request) -> Any:
        response = yield httpx.Request(
            "POST", request.url.join("/token"), data={"grant_type": "client_credentials"}
        )
        request.headers["Authorization"] = f"Bearer {response.json()['id']}"
        yield request


@pytest.mark.parametrize(
    "call", [with_httpx, async_to_sync(with_async_httpx)], ids=["httpx", "async httpx"]
)
def test_a_request_for_a_token(db: None, provider: Provider, call: Call) -> None:
    """The block names the charge, and not what is sent for it: the token has no key, and is not
    stored.
    """
    for _ in range(2):
        with outgoing("order-17"):
            reply = call("POST", f"{provider.url}/charges", json=AMOUNT, terms={"auth": Tokens()})
        assert reply.body["id"] == "ch_2"
    assert provider.keys == [None, row().key]
    assert provider.seen[1][2]["authorization"] == "Bearer ch_1"
    assert b"ch_1" not in unpack_answer(row().pk, bytes(row().response or b""), status=200).body


@pytest.mark.parametrize("beside", ["proxy", "mounts"])
def test_a_transport_beside_ours(db: None, provider: Provider, beside: str) -> None:
    """Whatever carries the request, it is written down first."""
    plain = httpx.HTTPTransport(verify=False)
    options: dict[str, Any] = {"proxy": provider.url, "verify": False, "transport": None}
    with (
        client(**options if beside == "proxy" else {"mounts": {"all://": plain}}) as made,
        outgoing("order-17"),
    ):
        made.post("http://charges.invalid/" if beside == "proxy" else provider.url, json=AMOUNT)
    assert provider.keys == [row().key]
    assert row().state == "succeeded"


# -------------------------------------------------------------------------------------------- steps


def test_in_a_thread_of_a_step(call: Call, provider: Provider, step: RunningStep) -> None:
    """The step's name does not reach there: the call is refused, and not sent without a key."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            call("POST", provider.url, json=AMOUNT)
        except CallWithoutName as error:
            raised.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert len(raised) == 1
    assert provider.seen == []


@pytest.fixture
def step() -> Iterator[RunningStep]:
    step = RunningStep(name="charge", key="5" * 64, operation="0" * 32, transactional=False)
    token = CURRENT_STEP.set(step)
    yield step
    CURRENT_STEP.reset(token)


def test_in_a_step(call: Call, provider: Provider, step: RunningStep) -> None:
    """The name and the key are the step's, on every attempt of its operation."""
    call("POST", provider.url, json=AMOUNT)
    assert provider.keys == [step.key]
    assert row().name == f"{step.operation}/charge"


def test_a_second_call_in_a_step(call: Call, provider: Provider, step: RunningStep) -> None:
    """It would get the first one's response, so it needs a name.

    The retry of a failed one is no second call.
    """
    provider.plan = [Failure(status=503, headers={"x-should-retry": "false"})]
    with pytest.raises(CallInTransaction), transaction.atomic():
        call("POST", provider.url, json=AMOUNT)
    assert call("POST", provider.url, json=AMOUNT).status == 503
    assert call("POST", provider.url, json=AMOUNT).status == 200
    assert set(provider.keys) == {step.key}
    with pytest.raises(StepNamesOneCall):
        call("POST", provider.url, json=AMOUNT)
    with outgoing("the second"):
        call("POST", provider.url, json=AMOUNT)
    call("POST", provider.url, "the third", json=AMOUNT)
    assert len(provider.seen) == 4


def test_in_a_transactional_step(call: Call, provider: Provider) -> None:
    inner = RunningStep(name="order", key="5" * 64, operation="0" * 32, transactional=True)
    token = CURRENT_STEP.set(inner)
    try:
        with pytest.raises(CallInTransaction, match="not transactional"):
            call("POST", provider.url, "order-17", json=AMOUNT)
    finally:
        CURRENT_STEP.reset(token)


def test_every_state_is_short() -> None:
    """The column has room for each."""
    longest = OutgoingCall._meta.get_field("state").max_length
    assert longest is not None
    assert max(len(state.value) for state in CallState) <= longest


def test_how_calls_ended_is_counted(call: Call, provider: Provider) -> None:
    """Each logical call once, however often it was sent; a replay, too; what has no name is not."""
    meter = RecordingMeter()
    with installed(meter):
        provider.plan = [Failure(status=503), Failure(status=402)]
        call("POST", f"{provider.url}/charges", "order-18", json=AMOUNT)
        for _ in range(2):
            call("POST", f"{provider.url}/charges", "order-17", json=AMOUNT)
        call("POST", f"{provider.url}/charges", None, json=AMOUNT, terms={"require_names": False})
    calls = meter.labels("outgoing.calls")
    assert [outcome for _, outcome in calls] == ["refused", "succeeded", "replayed"]
    assert len({provider for provider, _ in calls}) == 1
