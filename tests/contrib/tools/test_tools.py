"""Tools of `mcp` and `fastmcp`, called by their own clients."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from contextvars import copy_context
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.utils import timezone

pytest.importorskip("mcp")

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.mcpserver import Context, Image
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pytest_django import Settings

from django_idempotency import StatusOnly, Tombstones, idempotent_function, realm
from django_idempotency.contrib.tools import authenticated, hints, idempotent_tool
from django_idempotency.core.records import Status
from django_idempotency.errors import ConfigurationError, KeyMissing, StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from testproject.payments.models import Effect

from .servers import KEY, Declined, Shop, agent_of, polled, write

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]


@pytest.fixture(params=["mcp", "fastmcp"])
def sdk(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)  # fastmcp needs Python 3.11
    return str(request.param)


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(sdk: str, kind: str) -> Any:
    """Return a maker of shops."""
    return lambda **options: Shop(sdk, is_async=kind == "async", **options)


def effects() -> int:
    return Effect.objects.filter(label="tool").count()


def test_once(made: Any) -> None:
    """A repeated call gets the first result, in the form of the first one, and says that it is a
    replay.
    """
    shop = made()
    first, again = shop.call(), shop.call()
    assert first.content == again.content == {"id": Effect.objects.get().pk, "amount": 1}
    assert (first.is_error, first.replayed, again.is_error, again.replayed) == (
        False,
        False,
        False,
        True,
    )


def test_whose_key_it_is(made: Any) -> None:
    """Two callers, or two tools, share no record; two sessions of one caller do."""
    shop = made()
    answers = [shop.call(), shop.call(), shop.call(agent="bob"), shop.call(tool="refund")]
    assert [each.replayed for each in answers] == [False, True, False, False]
    assert effects() == 3
    assert sorted(IdempotencyRecord.objects.values_list("scope", flat=True)) == [
        f"realm:caller:ada/call:{shop.sdk}.charge",
        f"realm:caller:ada/call:{shop.sdk}.refund",
        f"realm:caller:bob/call:{shop.sdk}.charge",
    ]


def test_a_tenant(made: Any) -> None:
    """A caller of one tenant is another one in the next."""
    shop = made()
    for name in ("acme", "umbrella", "acme"):
        with realm(name):
            shop.call()
    assert effects() == 2


def test_nobodys_key(made: Any) -> None:
    """A key without a caller is refused; so is one that is not a key."""
    shop = made()
    assert shop.call(agent=None).said == ("scope-required", "never")
    for key in ("", "ключ", 7, {"a": 1}, "x" * 256):
        assert shop.call(key=key).said == ("key-malformed", "new-key")
    assert effects() == 0


def test_an_error_of_what_it_calls(made: Any) -> None:
    """It is the tool's failure: no word says that nothing was done."""

    def work(amount: int) -> Any:
        write(amount)
        raise KeyMissing

    answer = made(work=work, guarantee="lease").call()
    assert answer.is_error
    assert "retry" not in (answer.content or {})
    assert effects() == 1


def test_other_arguments(made: Any) -> None:
    """They are another call, whether given or left to their defaults; `_meta` and the Context do
    not count.
    """
    shop = made()
    shop.call()
    assert shop.call(2).said == ("request-mismatch", "look-first")
    assert shop.call(note="twice").said == ("request-mismatch", "look-first")
    assert shop.call(note="").replayed
    assert effects() == 1


def test_while_it_runs(sdk: str, kind: str) -> None:
    """A call that is repeated meanwhile is to be repeated, and then gets the result."""
    shop = Shop(sdk, is_async=kind == "async", guarantee="lease")
    shop.held.set()

    async def run() -> tuple[Any, Any]:
        running = asyncio.create_task(shop.acall())
        await polled(shop.done.is_set)
        meanwhile = await shop.acall()
        shop.held.clear()
        return await running, meanwhile

    first, meanwhile = async_to_sync(run)()
    assert meanwhile.said == ("in-progress", "same-key")
    assert meanwhile.content["retry_after"] >= 1
    assert shop.call() == first._replace(replayed=True)
    assert effects() == 1


def test_without_a_key(made: Any) -> None:
    """It runs unguarded, or is refused."""
    shop, strict = made(), made(required=True)
    assert [shop.call(key=None).replayed for _ in range(2)] == [False, False]
    assert strict.call(key=None).said == ("key-missing", "new-key")
    assert effects() == 2


def test_a_key_among_the_arguments(made: Any) -> None:
    """Where the tool has one, `_meta` comes first."""
    shop = made(argument="request_id")
    assert [shop.call(key=None, request_id=name).replayed for name in ("a", "a", "b")] == [
        False,
        True,
        False,
    ]
    assert not shop.call(request_id="a").replayed
    assert effects() == 3


def test_a_derived_key(made: Any, settings: Settings) -> None:
    """Equal calls of one caller are one until the window has passed since the first ended; a
    repetition does not prolong it.
    """
    settings.IDEMPOTENCY = {"EXTENSIONS": [Tombstones(3600)]}
    shop = made(derived_for=30)
    assert [shop.call(key=None).replayed for _ in range(3)] == [False, True, True]
    assert not shop.call(2, key=None).replayed
    assert not shop.call(key=None, agent="bob").replayed
    assert not shop.call(key=None, tool="refund").replayed
    assert shop.call(key=None, agent=None).said == ("scope-required", "never")
    assert not shop.call().replayed  # its own key is another
    assert effects() == 5
    left = [each.expires_at - timezone.now() for each in IdempotencyRecord.objects.exclude(key=KEY)]
    assert all(timedelta(seconds=20) < each <= timedelta(seconds=30) for each in left)
    IdempotencyRecord.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert not shop.call(key=None).replayed


def test_what_the_tool_raises(made: Any) -> None:
    """Its exception is the SDK's to tell, and frees the key; one that is kept is raised again."""
    for terms, key in (({}, "free"), ({"keep_exceptions": Declined}, "kept")):
        shop = made(**terms)
        assert [shop.call(-1, key=key).is_error for _ in range(2)] == [True, True]
    records = IdempotencyRecord.objects
    assert records.get(key="free").attempt == 2
    assert records.get(key="kept").attempt == 1


def test_other_problems(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a result with a word: its result was not stored, it is too old, a person looks, the
    store is away.
    """
    shop = made(
        guarantee="lease",
        on_takeover=lambda takeover: takeover.hold(),
        extensions=[StatusOnly()],
    )
    shop.call()
    record = IdempotencyRecord.objects.all()
    assert shop.call().said == ("response-not-stored", "look-first")
    with override_settings(IDEMPOTENCY={"EXTENSIONS": [Tombstones(3600)]}):
        now = timezone.now()
        record.update(completed_at=now - timedelta(hours=1), expires_at=now + timedelta(minutes=30))
        assert shop.call().said == ("key-expired", "look-first")
    record.update(status=Status.RUNNING.value, lease_until=timezone.now() - timedelta(seconds=1))
    assert shop.call().said == ("operation-held", "never")

    def away(*_: Any) -> Any:
        raise StoreUnavailable

    monkeypatch.setattr(stores["default"], "claim", away)
    assert shop.call().said == ("store-unavailable", "same-key")
    assert effects() == 1


def test_a_question_to_the_client(sdk: str, kind: str) -> None:
    """It is no result: the call goes on with the answer, under its key, and its end is stored."""
    rounds: list[int] = []

    def work(amount: int) -> Any:
        rounds.append(amount)
        return (
            write(amount)
            if len(rounds) > 1
            else InputRequiredResult(input_requests={}, request_state="asked")
        )

    shop = Shop(sdk, is_async=kind == "async", work=work)
    record = IdempotencyRecord.objects
    context = context_of()
    call = async_to_sync(shop.guarded) if kind == "async" else shop.guarded
    assert isinstance(call(1, context), InputRequiredResult)
    assert record.get().status == Status.FREE.value
    assert call(1, context)["amount"] == 1
    assert (record.get().status, record.get().attempt, effects()) == (Status.COMPLETED.value, 2, 1)
    assert call(1, context).meta == {"idempotent-replayed": True}


def test_a_result_that_is_an_error(sdk: str, kind: str) -> None:
    """What was written is rolled back, and the key is free for the same call.

    Under a lease nothing is: it is stored.
    """
    rounds: list[int] = []
    cls: Any = (
        CallToolResult if sdk == "mcp" else importlib.import_module("fastmcp.tools").ToolResult
    )

    class Own(cls):  # known as what it is
        pass

    failed = (cls if kind == "async" else Own)(content=[], is_error=True)

    def work(amount: int) -> Any:
        rounds.append(amount)
        made = write(amount)
        return made if len(rounds) > 1 else failed

    shop = Shop(sdk, is_async=kind == "async", work=work)
    call = async_to_sync(shop.guarded) if kind == "async" else shop.guarded
    assert call(1, context_of()) is failed
    assert effects() == (1 if kind == "async" else 0)
    again, record = call(1, context_of()), IdempotencyRecord.objects.get()
    if kind == "async":
        assert (again.is_error, record.attempt, effects()) == (True, 1, 1)
    else:
        assert (again["amount"], record.attempt, effects()) == (1, 2, 1)
    assert record.status == Status.COMPLETED.value


# --------------------------------------------------------------------------------- without a client


def context_of(agent: str = "ada", key: str | None = KEY, session: str | None = None) -> Any:
    """Return what stands for a Context in a direct call."""
    request = SimpleNamespace(headers={} if session is None else {"mcp-session-id": session})
    meta = {"agent": agent, **({} if key is None else {"idempotency-key": key})}
    return SimpleNamespace(request_context=SimpleNamespace(meta=meta, request=request))


def test_a_call_of_ones_own() -> None:
    """Without a request, as in a project's own test, there is no key, and nobody calls."""

    @idempotent_tool(key_prefix="own")
    def charge(amount: int, ctx: Context) -> int:
        return write(amount)["id"]

    assert charge(1, Context()) != charge(1, None)  # type: ignore[arg-type]


def test_sessions_have_derived_keys_of_their_own() -> None:
    """Before MCP 2026-07-28 there are sessions: equal calls in two of them are meant twice."""

    @idempotent_tool(key_prefix="sessions", derived_for=30, caller=agent_of)
    def charge(amount: int, ctx: Context) -> dict[str, int]:
        return write(amount)

    for session in ("one", "two", "one", None, None):
        charge(1, context_of(key=None, session=session))
    assert effects() == 3


def test_it_works_outside_of_its_callers_realm() -> None:
    """What a tool calls has keys of its own: two agents that charge one order charge it once."""

    @idempotent_function(key="order", key_prefix="once")
    def pay(order: int) -> dict[str, int]:
        return write(order)

    @idempotent_tool(key_prefix="outer", caller=agent_of)
    def charge(amount: int, ctx: Context) -> dict[str, int]:
        return pay(amount)

    with realm("acme"):
        assert charge(1, context_of("ada")) == charge(1, context_of("bob"))
    assert effects() == 1
    assert pay.idempotency.lookup(1) is None


def test_what_is_injected_is_left_out() -> None:
    """It may be another object on each call, and one that cannot be hashed; all else must stay the
    same.
    """

    @idempotent_tool(key_prefix="injected", caller=agent_of, exclude=["client"])
    def charge(amount: int, ctx: Context, client: Any) -> dict[str, int]:
        return write(amount)

    charge(1, context_of(), object())
    charge(1, context_of(), object())
    assert effects() == 1


def test_a_sync_tool_on_an_event_loop() -> None:
    """The error is ours, and says what to do: Django would only say that it cannot be used
    there.
    """

    @idempotent_tool(key_prefix="blocking", caller=agent_of)
    def charge(amount: int, ctx: Context) -> int:
        return amount

    async def call() -> Any:
        return charge(1, context_of())

    with pytest.raises(
        ConfigurationError, match="blocking is a sync tool, and is called on an event loop"
    ):
        async_to_sync(call)()
    # An async tool in a transaction.
    with pytest.raises(ConfigurationError, match='guarantee="lease"'):
        async_to_sync(idempotent_tool(key_prefix="acharge", caller=agent_of)(call_async))(
            1, context_of()
        )


async def call_async(amount: int, ctx: Context) -> int:
    return amount


def test_a_coroutine_that_is_closed() -> None:
    """It leaves quietly, also where another context closes it, and the tool is finished."""

    async def work(amount: int, ctx: Context) -> int:
        await asyncio.sleep(0)
        return (await sync_to_async(write)(amount))["id"]

    guarded = idempotent_tool(key_prefix="closed", guarantee="lease", caller=agent_of)(work)

    async def run() -> None:
        coroutine = guarded(1, context_of())
        copy_context().run(coroutine.send, None)
        coroutine.close()
        await polled(
            lambda: not [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        )

    async_to_sync(run)()
    assert (effects(), IdempotencyRecord.objects.get().status) == (1, Status.COMPLETED.value)


def test_a_caller_that_is_no_name() -> None:
    @idempotent_tool(key_prefix="nameless", caller=lambda _: 7)  # type: ignore[arg-type, return-value]
    def charge(amount: int, ctx: Context) -> int:
        return amount

    with pytest.raises(ConfigurationError, match="caller returns text, or None, not 7"):
        charge(1, context_of())


def test_the_principal_of_an_access_token(sdk: str) -> None:
    """It is the client, its issuer and its user: each is another caller."""
    base = importlib.import_module(
        f"{sdk}.server.auth.{'provider' if sdk == 'mcp' else 'auth'}"
    ).AccessToken
    context = Context() if sdk == "mcp" else SimpleNamespace()
    names = set()
    for client_id, issuer, subject in (
        ("app", "a", "1"),
        ("app", "a", "2"),
        ("app", "b", "1"),
        ("bot", "a", "1"),
    ):
        token = base(
            token="t", client_id=client_id, scopes=[], subject=subject, claims={"iss": issuer}
        )
        reset = auth_context_var.set(AuthenticatedUser(token))
        names.add(authenticated(context))
        auth_context_var.reset(reset)
    assert '["app", "a", "1"]' in names
    assert len(names) == 4
    assert authenticated(context) is None


# -------------------------------------------------------------------------------------- declaration


def without_context(amount: int) -> int:
    return amount


def unresolvable(amount: Nowhere, ctx: Context) -> int:  # type: ignore[name-defined]  # noqa: F821
    return 1


def draws(ctx: Context) -> Image:
    return Image(data=b"")


def draws_many(ctx: Context) -> dict[str, list[Image] | None]:
    return {}


def unannotated(ctx: Context):
    return Image(data=b"")


def storable(
    ctx: Context,
) -> Sequence[CallToolResult | dict[str, Any]] | tuple[Decimal, ...] | Literal["none"] | None:
    return None


@pytest.mark.parametrize(
    ("function", "terms"),
    [
        (storable, {}),
        (unannotated, {}),
        (draws, {"serializer": (lambda image: image.data, lambda data: Image(data=data))}),
    ],
)
def test_what_is_stored(function: Any, terms: dict[str, Any]) -> None:
    """A class of the SDK that has fields, what is abstract, what no annotation says, and what is
    given a serializer.
    """
    assert idempotent_tool(**terms)(function)


@pytest.mark.parametrize(
    ("function", "terms", "says"),
    [
        (without_context, {}, "it takes no Context"),
        (unresolvable, {}, "its annotations cannot be resolved: name 'Nowhere'"),
        (call_async, {"guarantee": "atomic"}, "lease"),
        (call_async, {"argument": "request_id"}, "it has no argument request_id"),
        (call_async, {"exclude": ["db"]}, "it has no argument db"),
        (call_async, {"caller": call_async}, "takes a sync function"),
        (call_async, {"derived_for": 0}, "ttl"),
        (call_async, {"key": "amount"}, "key"),
        (draws, {"guarantee": "lease"}, r"it returns a [\w.]+Image, which cannot be stored"),
        (draws_many, {"guarantee": "lease"}, r"it returns a [\w.]+Image, which cannot be stored"),
    ],
)
def test_what_never_works(function: Any, terms: dict[str, Any], says: str) -> None:
    """It is said where the tool is declared."""
    with pytest.raises((ImproperlyConfigured, ValueError, TypeError), match=says):
        idempotent_tool(**terms)(function)


@pytest.mark.parametrize(
    ("terms", "once"), [({}, False), ({"required": True}, True), ({"derived_for": 30}, True)]
)
def test_hints(terms: dict[str, Any], once: bool) -> None:
    """A client may repeat a call by itself only where none without a key runs; what is destroyed
    its author knows.
    """
    guarded = idempotent_tool(guarantee="lease", **terms)(call_async)
    said = ToolAnnotations.model_validate(hints(guarded, destructive=False, openWorldHint=True))
    assert (said.idempotent_hint, said.destructive_hint, said.open_world_hint) == (
        once,
        False,
        True,
    )
    assert hints(guarded)["destructiveHint"]


def test_hints_of_what_is_not_guarded() -> None:
    with pytest.raises(TypeError, match="has decorated"):
        hints(without_context)
