"""Methods under a key, over a real server: once for each caller and request."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from django.db import close_old_connections
from django.db.models import F

pytest.importorskip("grpc")

import grpc
from grpc import StatusCode
from pytest_django import Settings

from django_idempotency import OnTakeover, Policy, StatusOnly
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.core.records import Status
from django_idempotency.errors import ScopeRequired, StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.memory import MemoryStore
from testproject.payments.models import Effect

from .shop import (
    CHARGE,
    ECHO,
    KEY,
    PATIENCE,
    REFUND,
    WATCH,
    Client,
    Serve,
    Shop,
    aserving,
    serving,
    struct,
)

pytestmark = [pytest.mark.either_server, pytest.mark.django_db(transaction=True)]

REPLAYED = ("idempotent-replayed", "true")


def test_once(client: Client, shop: Shop) -> None:
    """The second call is a replay, and says so; one under another key runs."""
    first, second, other = client(), client(), client(key="another")
    assert [each.code for each in (first, second, other)] == [StatusCode.OK] * 3
    assert (first.value, second.value, other.value) == (1, 1, 2)
    assert [REPLAYED in each.trailing.items() for each in (first, second, other)] == [
        False,
        True,
        False,
    ]
    assert Effect.objects.count() == 2


def test_either_name_holds_the_key(client: Client, shop: Shop) -> None:
    """`idempotency-key` is the same as `x-idempotency-key`."""
    assert [client().value, client(key=None, metadata=(("idempotency-key", KEY),)).value] == [1, 1]


def test_messages_of_another_making(client: Client, shop: Shop) -> None:
    """What protobuf does not know is compared by its bytes, and replayed as it was sent."""
    replies = [client(request, method=ECHO) for request in (b"[5]", b"[5]", b"[6]")]
    assert [each.value for each in replies] == [[5, 1], [5, 1], None]
    assert replies[2].problem == (StatusCode.FAILED_PRECONDITION, "request-mismatch")


def test_another_request(client: Client, shop: Shop) -> None:
    """The same key with another request is refused, and does not run."""
    client()
    assert client(struct(amount=6)).problem == (StatusCode.FAILED_PRECONDITION, "request-mismatch")
    assert len(shop.runs) == 1


def test_the_same_request_in_another_order(client: Client) -> None:
    """Protobuf may write the entries of a map in any order."""
    entries = [struct(**{f"item{number}": 5}).SerializeToString() for number in range(20)]
    replies = [client(b"".join(entries)), client(b"".join(reversed(entries)))]
    assert [each.value for each in replies] == [1, 1]


def test_two_callers(client: Client, shop: Shop) -> None:
    """The same key of another caller is another key, and of nobody it is refused."""
    assert [client(caller=name).value for name in ("ada", "bob", "ada")] == [1, 2, 1]
    assert client(caller=None).problem == (StatusCode.UNAUTHENTICATED, "scope-required")
    assert len(shop.runs) == 2


def test_all_callers_share(serve: Serve, guarding: Any, shop: Shop) -> None:
    """Only if that is said; then a key must be hard to guess."""
    client = serve(guarding(caller=None))
    assert [client(caller=name).value for name in ("ada", "bob")] == [1, 1]
    assert client(key="order-17").problem == (StatusCode.INVALID_ARGUMENT, "key-too-short")


def test_a_caller_is_refused(serve: Serve, kind: str, guarding: Any, shop: Shop) -> None:
    """`caller` may abort, raise our errors, and under aio be awaited.

    It is asked before a replay, and not without a key.
    """

    def check(context: Any) -> Any:
        name = dict(context.invocation_metadata())["authorization"]
        if name == "eve":
            raise ScopeRequired
        return context.abort(StatusCode.PERMISSION_DENIED, "revoked") if name == "bob" else name

    async def acheck(context: Any) -> Any:
        found = check(context)
        return found if isinstance(found, str) else await found

    policies = {CHARGE: Policy(guarantee="lease")}
    client = serve(guarding(policies, caller=check if kind == "sync" else acheck))
    replies = [client(caller=name) for name in ("ada", "bob", "eve")]
    assert [each.code for each in replies] == [
        StatusCode.OK,
        StatusCode.PERMISSION_DENIED,
        StatusCode.UNAUTHENTICATED,
    ]
    assert client(key=None, caller=None).value == 2


def test_in_flight(client: Client, shop: Shop) -> None:
    """While the first call runs, another is asked to come back; then it is a replay."""
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client, struct(do="wait"))
        assert shop.begun.wait(PATIENCE)
        second = client(struct(do="wait"))
        shop.released.set()
        assert first.result(PATIENCE).value == 1
    assert second.problem == (StatusCode.ABORTED, "in-progress")
    assert int(second.trailing["retry-pushback-ms"]) >= 1000
    assert client(struct(do="wait")).value == 1
    assert len(shop.runs) == 1


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ((), "key-missing"),
        ((("x-idempotency-key", ""),), "key-malformed"),
        ((("x-idempotency-key", "a"), ("idempotency-key", "b")), "key-malformed"),
    ],
)
def test_no_key(
    client: Client, shop: Shop, metadata: tuple[tuple[str, str], ...], code: str
) -> None:
    """A method that needs a key needs one."""
    assert client(key=None, metadata=metadata).problem == (StatusCode.INVALID_ARGUMENT, code)
    assert shop.runs == []


def test_no_key_is_needed(serve: Serve, guarding: Any, shop: Shop) -> None:
    """Without one a method runs unguarded; so does one that is not listed."""
    client = serve(guarding(required=False))
    assert [client(key=None).value, client(key=None).value, client(method=REFUND).value] == [
        1,
        2,
        3,
    ]
    assert shop.runs == [0, 0, 0]


@pytest.mark.parametrize("do", ["abort", "status"])
def test_an_abort(client: Client, shop: Shop, do: str) -> None:
    """What a method aborts with is a failure, and arrives as it is: nothing is stored, and the next
    call is an attempt.
    """
    for _ in range(2):
        aborted = client(struct(do=do))
        assert (aborted.code, aborted.details) == (StatusCode.NOT_FOUND, "no such card")
        assert aborted.trailing == ({"reason": "stolen"} if do == "abort" else {})
    assert shop.runs == [1, 2]


def test_an_exception(client: Client, shop: Shop) -> None:
    """What a method raises is a failure: the server says so as without a guard."""
    for _ in range(2):
        failed = client(struct(do="raise"))
        assert (failed.problem, "no route" in failed.details) == ((StatusCode.UNKNOWN, None), True)
    assert shop.runs == [1, 2]


def test_another_call_is_refused(client: Client) -> None:
    """A refusal of a guarded call that the method makes is about that call's key: this one's is
    free.
    """
    replies = [client(struct(do="book")) for _ in range(2)]
    assert [each.problem for each in replies] == [(StatusCode.UNKNOWN, None)] * 2
    assert IdempotencyRecord.objects.get(scope=f"call:grpc:{CHARGE}").status == Status.FREE


def test_exceptions_that_are_answers(serve: Serve, guarding: Any, shop: Shop) -> None:
    """Also where any exception is one, an abort is not: a replay could not repeat its status."""
    client = serve(guarding(extensions=[UndoOn(Exception)]))
    assert [client(struct(do="abort")).code for _ in range(2)] == [StatusCode.NOT_FOUND] * 2
    assert [client(struct(do="raise"), key="b").code for _ in range(2)] == [StatusCode.UNKNOWN] * 2
    assert shop.runs == [1, 2, 1]


def retried(client: Client) -> Any:
    """Return the first answer to a retry that is not "it runs"."""
    ends = time.monotonic() + PATIENCE
    while (answer := client(struct(do="wait"))).code is StatusCode.ABORTED:
        assert time.monotonic() < ends
        time.sleep(0.05)
    return answer


def test_a_deadline(client: Client, shop: Shop) -> None:
    """What has begun runs on when the client stops waiting.

    No retry runs beside it, and one after it gets the result.
    """
    assert client(struct(do="wait"), timeout=0.5).code is StatusCode.DEADLINE_EXCEEDED
    assert client(struct(do="wait")).problem == (StatusCode.ABORTED, "in-progress")
    shop.released.set()
    assert retried(client).code is StatusCode.OK
    assert len(shop.runs) == 1


def test_a_deadline_that_has_passed(serve: Serve, kind: str, guarding: Any, shop: Shop) -> None:
    """Nothing begins after it, and no record is left."""
    asked = Event()

    def slow(context: Any) -> str:
        Event().wait(context.time_remaining() + 0.01)
        asked.set()
        return "ada"

    client = serve(guarding(caller=slow))
    assert client(timeout=0.2).code is StatusCode.DEADLINE_EXCEEDED
    assert asked.wait(PATIENCE)
    assert shop.runs == []
    assert not IdempotencyRecord.objects.exists()


def test_streams_are_not_guarded(serve: Serve, guarding: Any, shop: Shop) -> None:
    """A method that streams runs each time; where a key is required, it is refused."""
    client = serve(guarding({WATCH: Policy(guarantee="lease")}))
    assert [client.watch(), client.watch()] == [[1], [2]]
    client = serve(guarding({WATCH: Policy(guarantee="lease", required=True)}))
    with pytest.raises(grpc.RpcError):
        client.watch()
    assert len(shop.runs) == 2


def test_a_restart(kind: str, shop: Shop, loop: Any, guarding: Any) -> None:
    """A new server, with an interceptor of its own, replays what the first one has stored."""
    values = []
    for _ in range(2):
        interceptors = (guarding(),)
        with (
            serving(shop, interceptors)
            if kind == "sync"
            else aserving(loop, shop, interceptors) as port
        ):
            client = Client(port)
            values += [client().value, client(b"[5]", method=ECHO).value]
            client.channel.close()
    assert values == [1, [5, 2], 1, [5, 2]]


def test_a_predicate(serve: Serve, guarding: Any, shop: Shop) -> None:
    """A function of the full name says how a method is guarded, or that it is not."""
    client = serve(
        guarding(lambda method: Policy(guarantee="lease") if method.endswith("/Refund") else None)
    )
    assert [client(method=REFUND).value for _ in range(2)] == [1, 1]
    assert [client().value for _ in range(2)] == [2, 3]
    assert client(method="/shop.Payments/Unknown").code is StatusCode.UNIMPLEMENTED


class Away(MemoryStore):
    """A store that cannot be reached."""

    def claim(self, ticket: Any) -> Any:
        raise StoreUnavailable


@pytest.mark.parametrize(
    ("policy", "code"), [("closed", StatusCode.UNAVAILABLE), ("open", StatusCode.OK)]
)
def test_the_store_is_away(
    serve: Serve, guarding: Any, settings: Settings, policy: str, code: StatusCode
) -> None:
    """The client is asked to come back; or the method runs unguarded, if the policy says so."""
    settings.IDEMPOTENCY = {"STORES": {"default": {"BACKEND": f"{__name__}.Away"}}}
    replied = serve(guarding(on_store_failure=policy))()
    assert replied.code is code
    if policy == "closed":
        assert replied.trailing == {
            "idempotency-problem": "store-unavailable",
            "retry-pushback-ms": "1000",
        }


def test_held(serve: Serve, guarding: Any, shop: Shop) -> None:
    """A takeover may hold what broke off: then a person decides, and no client need come back."""
    client = serve(guarding(extensions=[OnTakeover(lambda takeover: takeover.hold())]))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client, struct(do="wait"))
        assert shop.begun.wait(PATIENCE)
        IdempotencyRecord.objects.update(lease_until=F("created_at"))
        replies = [client(struct(do="wait")) for _ in range(2)]
        shop.released.set()
        first.result(PATIENCE)
    assert [each.problem for each in replies] == [
        (StatusCode.FAILED_PRECONDITION, "operation-held")
    ] * 2
    assert "administrator" not in replies[0].details
    assert len(shop.runs) == 1


def test_a_response_that_is_not_stored(serve: Serve, guarding: Any, shop: Shop) -> None:
    """It was carried out, so it is not again."""
    client = serve(guarding(extensions=[StatusOnly()]))
    assert client().value == 1
    assert client().problem == (StatusCode.ALREADY_EXISTS, "response-not-stored")


def test_a_fault_of_the_server(
    serve: Serve, guarding: Any, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """What is wrong with the project is in the log, and the client is not told what."""
    refused = serve(guarding(caller=lambda context: 17))()
    assert (refused.problem, "caller" in refused.details) == ((StatusCode.INTERNAL, None), False)
    assert "caller must return text or None, not int." in caplog.text
    assert shop.runs == []


@pytest.mark.parametrize("kind", ["aio"], indirect=True)
def test_a_client_that_hangs_up(client: Client, shop: Shop) -> None:
    """aio cancels what serves it, but not what has begun."""
    method: Any = client.channel.unary_unary(CHARGE)
    metadata = (("x-idempotency-key", KEY), ("authorization", "ada"))
    call = method.future(struct(do="wait").SerializeToString(), metadata=metadata)
    assert shop.begun.wait(PATIENCE)
    call.cancel()
    assert client(struct(do="wait")).problem == (StatusCode.ABORTED, "in-progress")
    shop.released.set()
    assert retried(client).code is StatusCode.OK
    assert len(shop.runs) == 1


def test_an_error_of_what_the_method_calls(client: Client, shop: Shop) -> None:
    """It is the method's failure, and never taken for a refusal of its own call, which says that
    nothing was done.
    """
    answer = client(struct(do="inner"))
    assert (answer.code, answer.problem[1]) == (StatusCode.UNKNOWN, None)
    assert len(shop.runs) == 1


@pytest.mark.parametrize("kind", ["sync"], indirect=True)
def test_old_connections(
    serve: Serve, guarding: Any, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are closed before a method and after it, as around a request: the threads of a server
    live long.
    """
    runs: list[int] = []

    def close() -> None:
        runs.append(len(shop.runs))
        close_old_connections()

    monkeypatch.setattr("django_idempotency.contrib.grpc.interceptors.close_old_connections", close)
    client = serve(guarding())
    client()
    client(struct(do="raise"), key="b")
    assert runs == [0, 1, 1, 2]


# --------------------------------------------------------------------------------------- guarantees


@pytest.mark.parametrize("kind", ["sync"], indirect=True)
@pytest.mark.parametrize("do", ["abort", "status", "raise"])
def test_a_failure_is_rolled_back(serve: Serve, guarding: Any, shop: Shop, do: str) -> None:
    """In `atomic` what a failed method wrote is gone, and the next call is an attempt."""
    client = serve(guarding(guarantee="atomic"))
    replies = [client(struct(do=do)) for _ in range(2)]
    assert StatusCode.OK not in [each.code for each in replies]
    assert shop.runs == [1, 2]
    assert not Effect.objects.exists()


@pytest.mark.parametrize("kind", ["sync"], indirect=True)
def test_committed_together(serve: Serve, guarding: Any) -> None:
    """In `atomic` response and effect are committed together, and replayed."""
    client = serve(guarding(guarantee="atomic"))
    assert [client().value, client().value] == [1, 1]
    assert Effect.objects.count() == 1


@pytest.mark.parametrize(
    ("on_failure", "code"), [("free", StatusCode.NOT_FOUND), ("hold", StatusCode.ABORTED)]
)
def test_a_failure_under_a_lease(
    serve: Serve, guarding: Any, shop: Shop, on_failure: str, code: StatusCode
) -> None:
    """Under a lease what a failed method wrote stays; its key is free, or busy until the lease
    ends.
    """
    client = serve(guarding(on_failure=on_failure))
    assert [client(struct(do="abort")).code for _ in range(2)] == [StatusCode.NOT_FOUND, code]
    assert Effect.objects.count() == len(shop.runs) == (2 if on_failure == "free" else 1)
