"""`fresh_keys` slows a client that makes a new key for each retry; `suspect` finds equal requests
under different keys.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from adrf.views import APIView as AsyncAPIView
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models import F
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import path
from ninja import NinjaAPI
from ninja.security import django_auth
from rest_framework.authentication import SessionAuthentication
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import OnTakeover, Policy, idempotent, idempotent_function, signals
from django_idempotency.contrib.limits import FreshKeys, Suspect
from django_idempotency.core.records import Status
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.runtime.registry import stores
from testproject.payments.models import Effect

from ...entry_points.conftest import effects
from ...support.factories import UserFactory
from ...support.services import REDIS, needs_redis

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

#: A window so long that a test never sees its end.
LIMITED: dict[str, Any] = {"extensions": [FreshKeys("3/d")]}
REFUSING: dict[str, Any] = {"extensions": [Suspect("body.[card, amount]", refuse=True)]}
REPORTING: dict[str, Any] = {"extensions": [Suspect("body.[card, amount]")]}


def write() -> None:
    Effect.objects.create(label="screened", attempt=0)


def plain(request: HttpRequest) -> HttpResponse:
    """Respond as the header asks."""
    write()
    if (how := request.headers.get("How", "201")) == "raise":
        raise LookupError
    return JsonResponse({}, status=int(how))


async def aplain(request: HttpRequest) -> HttpResponse:
    await Effect.objects.acreate(label="screened", attempt=0)
    if (how := request.headers.get("How", "201")) == "raise":
        raise LookupError
    return JsonResponse({}, status=int(how))


def rest(policy: dict[str, Any]) -> Any:
    class View(IdempotentViewMixin, APIView):
        authentication_classes = (SessionAuthentication,)
        idempotency = Policy(**policy)

        def post(self, request: Any) -> Response:
            return Response({}, status=plain(request._request).status_code)

    return View.as_view()


def async_rest(policy: dict[str, Any]) -> Any:
    class View(IdempotentViewMixin, AsyncAPIView):
        authentication_classes = (SessionAuthentication,)
        idempotency = Policy(**policy, guarantee="lease")

        async def post(self, request: Any) -> Response:
            return Response({}, status=(await aplain(request._request)).status_code)

    return View.as_view()


ninja = NinjaAPI(urls_namespace="screening", auth=django_auth)


def ninja_operation(name: str, policy: dict[str, Any]) -> None:
    @ninja.post(f"/{name}/ninja/")
    @idempotent(**policy)
    def operation(request: HttpRequest) -> Any:
        return plain(request)


def doors(name: str, policy: dict[str, Any]) -> Iterator[Any]:
    ninja_operation(name, policy)
    yield path(f"{name}/decorator/", idempotent(**policy)(plain))
    yield path(f"{name}/lease/", idempotent(**policy, guarantee="lease")(plain))
    yield path(f"{name}/async/", idempotent(**policy, guarantee="lease")(aplain))
    yield path(f"{name}/mixin/", rest(policy))
    yield path(f"{name}/adrf/", async_rest(policy))


#: That of a project, named by its settings.
ONE_A_DAY = FreshKeys("1/d")
DOORS = ("decorator", "lease", "async", "mixin", "adrf", "ninja")


def by_function(request: HttpRequest) -> str:
    return request.headers["Client"]


urlpatterns = [
    *doors("limited", LIMITED),
    *doors("refusing", REFUSING),
    path("middleware/", plain),
    path("reporting/", idempotent(**REPORTING)(plain)),
    path("async-reporting/", idempotent(**REPORTING, guarantee="lease")(aplain)),
    path("neither/", idempotent()(plain)),
    path("by-the-second/", idempotent(extensions=[FreshKeys("1/10s")])(plain)),
    path("by-card/", idempotent(extensions=[FreshKeys("3/d", by="body.card")])(plain)),
    path("by-function/", idempotent(extensions=[FreshKeys("3/d", by=by_function)])(plain)),
    path("burst/", idempotent(extensions=[FreshKeys("9/d, 2/h")])(plain)),
    path("limited/<int:pk>/", idempotent(**LIMITED)(lambda request, pk: plain(request))),
    path("", ninja.urls),
]


@pytest.fixture(autouse=True)
def a_cache(settings: Any) -> None:
    location = uuid4().hex
    backend = "django.core.cache.backends.locmem.LocMemCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": location}}


Send = Callable[..., Any]


def counts_only(self: FreshKeys, call: Any, payload: Any) -> None:
    """Do not look before the claim: others race past the look, too."""
    call.memory[self] = self._counted(call, payload)


def sender(user: User, *, asgi: bool = False) -> Send:
    client: Any = (
        AsyncClient(raise_request_exception=False)
        if asgi
        else Client(raise_request_exception=False)
    )
    client.force_login(user)
    post = async_to_sync(client.post) if asgi else client.post

    def send(url: str, key: str, how: str = "201", **body: Any) -> Any:
        headers = {"Idempotency-Key": key, "How": how, "Client": body.pop("client", "c-1")}
        return post(
            url,
            {"card": "4242", "amount": 5, **body},
            content_type="application/json",
            headers=headers,
        )

    return send


@pytest.fixture(params=[False, True], ids=["wsgi", "asgi"])
def send(user: User, request: pytest.FixtureRequest) -> Send:
    return sender(user, asgi=request.param)


def crash(key: str) -> None:
    """Leave the record of a request as an owner does that is killed before its settle."""
    found = IdempotencyRecord.objects.filter(key=key)
    assert found.update(status=Status.RUNNING, lease_until=F("created_at"), completed_at=None) == 1


def codes(*responses: Any) -> list[Any]:
    return [
        response.status_code if response.status_code < 400 else response.json()["code"]
        for response in responses
    ]


# --------------------------------------------------------------------------------------- fresh keys


@pytest.mark.parametrize("name", [f"limited/{door}" for door in DOORS])
def test_too_many_new_keys(send: Send, name: str) -> None:
    """The fourth new key waits; replays and other bodies never count, and known keys are served as
    ever.
    """
    url = f"/{name}/"
    assert codes(*(send(url, "k1") for _ in range(6))) == [201] * 6
    assert codes(send(url, "k1", amount=6)) == ["request-mismatch"]
    assert codes(*(send(url, key) for key in ("k2", "k3"))) == [201, 201]
    refused = send(url, "k4")
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-keys")
    assert 1 <= int(refused["Retry-After"]) <= 86400
    assert (refused["Idempotency-Status"], refused.json()["operation_state"]) == (
        "refused",
        "unknown",
    )
    assert refused.json()["safe_new_key"] is False
    assert codes(*(send(url, key) for key in ("k1", "k3"))) == [201, 201]
    assert effects() == 3


def test_too_many_new_keys_under_the_middleware(send: Send, settings: Any) -> None:
    """The setting counts for every view, route by route."""
    settings.IDEMPOTENCY = {"EXTENSIONS": [f"{__name__}.ONE_A_DAY"]}
    assert codes(
        send("/middleware/", "k1"), send("/middleware/", "k2"), send("/middleware/", "k1")
    ) == [*(201, "too-many-keys", 201)]
    assert codes(send("/neither/", "k3")) == [201]


def test_a_flood_writes_no_records(user: User, django_assert_num_queries: Any) -> None:
    """Over the limit a new key is looked up, and neither claimed nor released."""
    send = sender(user)
    for number in range(4):
        send("/limited/decorator/", f"k{number}")
    with CaptureQueriesContext(connections["default"]) as flood:
        assert codes(send("/limited/decorator/", "k9")) == ["too-many-keys"]
    reads = ("SELECT", "SET LOCAL")  # the latter bounds the wait of the statement after it
    assert not [query for query in flood.captured_queries if not query["sql"].startswith(reads)]
    assert IdempotencyRecord.objects.count() == 3


def test_the_same_key_may_come_again(send: Send) -> None:
    """A refused key leaves nothing: when its client may make keys again, it runs, even with another
    body.
    """
    for number in range(4):
        send("/limited/decorator/", f"k{number}")
    cache.clear()  # the window is over
    assert codes(send("/limited/decorator/", "k3", amount=6)) == [201]
    assert IdempotencyRecord.objects.get(key="k3").attempt == 1


@pytest.mark.parametrize("door", ["decorator", "lease"])
def test_what_is_claimed_and_refused_is_undone(
    user: User, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that race past the look are refused after their claim, and count again when they
    come again.
    """
    send, url = sender(user), f"/limited/{door}/"
    for number in range(3):
        send(url, f"k{number}")
    monkeypatch.setattr(FreshKeys, "before_claim", counts_only)
    assert (
        codes(send(url, "k3"), send(url, "k3"), send(url, "k3", amount=7)) == ["too-many-keys"] * 3
    )
    assert effects() == 3
    cache.clear()
    assert codes(send(url, "k3"), send(url, "k4"), send(url, "k5"), send(url, "k6")) == [
        *[201] * 3,
        "too-many-keys",
    ]


def test_a_failed_attempt_is_no_new_key(send: Send) -> None:
    """A retry after a 500, a 400 or a crash uses the key that was counted."""
    url = "/limited/lease/"
    for how in ("raise", "400", "201"):
        send(url, "k1", how)
    IdempotencyRecord.objects.update(
        status=Status.RUNNING, lease_until=F("created_at"), completed_at=None
    )
    assert codes(send(url, "k1"), send(url, "k2"), send(url, "k3"), send(url, "k4")) == [
        *[201] * 3,
        "too-many-keys",
    ]


@pytest.mark.parametrize("began", [1000.0, 1003.37, 1009.99])
def test_a_client_that_waits_as_it_was_told_is_not_refused_again(
    user: User, began: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retry-After reaches into the next window, and no second further than needed."""
    clock = [began]
    monkeypatch.setattr(
        "django_idempotency.contrib.limits.fresh_keys.time", SimpleNamespace(time=lambda: clock[0])
    )
    send = sender(user)
    assert codes(send("/by-the-second/", "k1")) == [201]
    wait = int(send("/by-the-second/", "k2")["Retry-After"])
    clock[0] = began + wait - 1
    assert codes(send("/by-the-second/", "k3")) == ["too-many-keys"]
    clock[0] = began + wait
    assert codes(send("/by-the-second/", "k2")) == [201]


def test_a_later_attempt_counts_nowhere(user: User) -> None:
    """Keys are counted, by what their first requests select: this is no limit of attempts with a
    card.
    """
    send = sender(user)
    for number in range(4):
        assert send("/by-card/", f"k{number}", "400", card=str(number)).status_code == 400
    assert (
        codes(*(send("/by-card/", f"k{number}", card="stolen") for number in range(4))) == [201] * 4
    )


def test_who_is_counted(user: User) -> None:
    """By default each client for itself; or by what the policy selects, whoever sends it.

    Each route for itself.
    """
    mine, others = sender(user), sender(UserFactory())
    for number in range(3):
        assert (
            codes(
                mine("/limited/decorator/", f"k{number}"),
                others("/limited/decorator/", f"k{number}"),
            )
            == [201] * 2
        )
    assert codes(mine("/limited/lease/", "k8"), mine("/limited/1/", "k9")) == [201] * 2
    for number in range(3):
        assert codes((mine, others)[number % 2]("/by-card/", f"c{number}")) == [201]
        assert codes((mine, others)[number % 2]("/by-function/", f"f{number}")) == [201]
    assert codes(mine("/by-card/", "c9"), others("/by-card/", "c8")) == ["too-many-keys"] * 2
    assert codes(others("/by-card/", "c7", card="4000")) == [201]
    assert codes(mine("/by-function/", "f9"), mine("/by-function/", "f8", client="c-2")) == [
        "too-many-keys",
        201,
    ]


def test_the_ids_in_a_path_are_one_route(user: User) -> None:
    """Otherwise a client could spread its keys over what it asks about."""
    send = sender(user)
    assert codes(*(send(f"/limited/{pk}/", f"k{pk}") for pk in range(4))) == [
        201,
        201,
        201,
        "too-many-keys",
    ]


def test_without_what_is_counted_by(user: User) -> None:
    """A request without the card counts for its client."""
    send = sender(user)
    assert codes(*(send("/by-card/", f"k{n}", card=None) for n in range(4))) == [
        201,
        201,
        201,
        "too-many-keys",
    ]


@pytest.mark.parametrize("backend", ["locmem", pytest.param("redis", marks=needs_redis)])
def test_a_race_of_new_keys(
    user: User, settings: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten new keys at once as many run as the policy says, however they interleave."""
    if backend == "redis":
        settings.CACHES = {
            "default": {
                "BACKEND": "django.core.cache.backends.redis.RedisCache",
                "LOCATION": REDIS,
                "KEY_PREFIX": uuid4().hex,
            }
        }
    monkeypatch.setattr(FreshKeys, "before_claim", counts_only)
    found = at_once(user, 10, lambda send, number: send("/limited/lease/", f"k{number}"))
    assert sorted(codes(*found), key=str) == [*[201] * 3, *["too-many-keys"] * 7]
    assert effects() == 3


def at_once(user: User, count: int, call: Callable[[Send, int], Any]) -> list[Any]:
    senders, barrier, found = [sender(user) for _ in range(count)], threading.Barrier(count), []

    def run(number: int) -> None:
        barrier.wait(20)
        found.append(call(senders[number], number))
        connections.close_all()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


class Broken(LocMemCache):
    """A cache whose server is gone."""

    def add(self, *args: Any, **kwargs: Any) -> bool:
        raise ConnectionError("the cache is gone")

    get = incr = delete = add


class Mute(LocMemCache):
    """A cache that does not raise, but does not count either."""

    def add(self, *args: Any, **kwargs: Any) -> bool:
        return False

    def incr(self, *args: Any, **kwargs: Any) -> int:
        raise ValueError

    def get(self, *args: Any, **kwargs: Any) -> Any:
        return None


@pytest.mark.parametrize("backend", [Broken, Mute])
@pytest.mark.parametrize(
    "url", ["/limited/decorator/", "/limited/async/", "/refusing/decorator/", "/refusing/async/"]
)
def test_a_cache_that_does_not_respond(
    send: Send, settings: Any, backend: type, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It refuses nothing.

    What idempotency promises does not depend on it, and the log says that nothing was screened.
    """
    settings.CACHES = {"default": {"BACKEND": f"{__name__}.{backend.__name__}"}}
    assert codes(*(send(url, f"k{number}") for number in [*range(5), 1])) == [201] * 6
    assert effects() == 5
    assert ("Unscreened" in caplog.text) is (backend is Broken or "limited" in url)


@pytest.mark.parametrize("rates", ["60", "0/m", "1.5/s", "60/w", "60/0m", "", "60/m,", "60/m 5/s"])
def test_what_is_no_rate(rates: str) -> None:
    """It is refused where it is typed."""
    with pytest.raises(ValueError, match=r'Type a number of keys .* "60/m"'):
        FreshKeys(rates)


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        ("60/m", [(60, 60)]),
        ("5/10s", [(5, 10)]),
        ("1000/h, 1/2d", [(1000, 3600), (1, 172800)]),
    ],
)
def test_rates(rates: str, found: list[tuple[int, int]]) -> None:
    """As many keys in as many seconds."""
    assert FreshKeys(rates).rates == tuple(found)


def test_a_burst(user: User) -> None:
    """Each of several rates holds."""
    send = sender(user)
    assert codes(*(send("/burst/", f"k{number}") for number in range(3))) == [
        *(201, 201, "too-many-keys")
    ]


@pytest.mark.parametrize("within", [0, -5, None, True])
def test_how_long_facts_are_remembered(within: Any) -> None:
    with pytest.raises(ValueError, match="within is a positive number of seconds"):
        Suspect("body.card", within=within)


def test_what_is_no_expression() -> None:
    """It is refused where it is typed."""
    with pytest.raises(ValueError, match=r"body\.card"):
        FreshKeys("1/m", by="card")
    with pytest.raises(ValueError, match="ends too early"):
        Suspect("body.[")


def test_a_function_has_no_request() -> None:
    """Neither looks at calls of functions: there it is refused when it is decorated."""
    for each in (FreshKeys("1/m"), Suspect("body.card")):
        with pytest.raises(ImproperlyConfigured, match="looks at requests"):
            idempotent_function(extensions=[each])(by_function)


def test_no_secret_reaches_the_cache(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a card, nor a key, nor a user is in the cache."""
    seen: list[str] = []
    for name in ("add", "get", "incr", "delete"):
        original = getattr(LocMemCache, name)

        def noting(self: Any, *args: Any, original: Any = original, **kwargs: Any) -> Any:
            seen.append(f"{args} {kwargs}")
            return original(self, *args, **kwargs)

        monkeypatch.setattr(LocMemCache, name, noting)
    sender(user)("/by-card/", "a-secret-key", card="4242424242424242")
    sender(user)("/refusing/decorator/", "a-secret-key", "400", card="4242424242424242")
    assert seen
    assert not [text for text in seen if "4242" in text or "secret" in text or "user:" in text]


# ------------------------------------------------------------------------------------------ suspect


@pytest.mark.parametrize("name", [f"refusing/{door}" for door in DOORS])
def test_the_same_under_another_key(send: Send, name: str) -> None:
    """It is refused, and names the first. The first is replayed, and other facts run."""
    url = f"/{name}/"
    assert codes(send(url, "k1")) == [201]
    refused = send(url, "k2")
    document = refused.json()
    assert (refused.status_code, document["code"], refused["Stripe-Should-Retry"]) == (
        409,
        "possible-duplicate",
        "false",
    )
    assert (document["safe_new_key"], document["operation_state"]) == (False, "unknown")
    assert document["operation_ref"] == send(url, "k1", amount=99).json()["operation_ref"]
    assert (
        codes(send(url, "k1"), send(url, "k3", amount=6), send(url, "k4", card="4000")) == [201] * 3
    )
    assert effects() == 3
    cache.clear()  # its time is over
    assert codes(send(url, "k2")) == [201]


@pytest.mark.parametrize("name", [f"refusing/{door}" for door in DOORS])
@pytest.mark.parametrize("how", ["400", "raise"])
def test_a_failed_request_is_no_first(send: Send, name: str, how: str) -> None:
    """What was refused or failed is forgotten, so a corrected request with another key runs."""
    url = f"/{name}/"
    assert send(url, "k1", how).status_code in (400, 500)
    assert codes(send(url, "k2")) == [201]
    # A late retry of the first, which is now the second.
    assert codes(send(url, "k1")) == ["possible-duplicate"]
    assert codes(send(url, "k2")) == [201]


@pytest.mark.parametrize("door", ["decorator", "async"])
@pytest.mark.parametrize("how", ["400", "raise"])
def test_a_takeover_that_fails_is_no_first(user: User, door: str, how: str) -> None:
    """The facts of a crashed request are those of the one that takes over, which are forgotten when
    that fails.
    """
    send, url = sender(user), f"/refusing/{door}/"
    send(url, "k1")
    crash("k1")
    assert send(url, "k1", how).status_code in (400, 500)
    assert codes(send(url, "k2")) == [201]


def test_a_takeover_is_not_judged(user: User) -> None:
    """It is the same request: it runs, even if its facts have become another key's, and they stay
    that one's.
    """
    send, url = sender(user), "/refusing/lease/"
    send(url, "k1")
    crash("k1")
    cache.clear()
    assert codes(send(url, "k2")) == [201]
    assert send(url, "k1", "400").status_code == 400
    assert codes(send(url, "k3")) == ["possible-duplicate"]


def test_a_refused_retry_keeps_its_record(user: User) -> None:
    """Its earlier attempt may have had an effect, which a retry of the same key must be able to
    find.
    """
    send, url = sender(user), "/refusing/lease/"
    send(url, "k1", "raise")
    before = IdempotencyRecord.objects.get(key="k1")
    send(url, "k2")
    assert codes(send(url, "k1")) == ["possible-duplicate"]
    after = stores["default"].get(before.pk)
    assert after is not None
    assert (after.operation, after.digest, after.status) == (
        before.operation,
        bytes(before.digest),
        Status.FREE,
    )
    cache.clear()
    assert codes(send(url, "k1")) == [201]


def test_a_failure_that_holds_its_key_is_remembered(user: User, settings: Any) -> None:
    """Nobody knows how far it came."""
    settings.IDEMPOTENCY = {
        "GUARANTEE": "lease",
        "ON_FAILURE": "hold",
        **{k.upper(): v for k, v in REFUSING.items()},
    }
    send = sender(user)
    assert send("/middleware/", "k1", "raise").status_code == 500
    assert codes(send("/middleware/", "k2")) == ["possible-duplicate"]


def test_a_client_that_disconnects_before_the_view(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has sent counts as a new key, and its facts are forgotten: the view has not run."""

    def cancelled(self: Any, event: str, operation: Any, error: Any = None) -> None:
        if event == "suspected":
            raise asyncio.CancelledError

    send, url = sender(user, asgi=True), "/async-reporting/"
    assert codes(send(url, "k1")) == [201]
    with monkeypatch.context() as patch:
        patch.setattr("django_idempotency.instrumentation.observer.Observer.__call__", cancelled)
        with pytest.raises(asyncio.CancelledError):
            send(url, "k2")
    record = IdempotencyRecord.objects.get(key="k2")
    assert (record.status, effects()) == (Status.FREE, 1)
    assert codes(send(url, "k2")) == [201]


def test_a_coroutine_that_is_closed_before_the_view(
    user: User, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be awaited then. Its key is free at once, and its facts are forgotten."""
    settings.IDEMPOTENCY = {
        "STORES": {"default": {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}}
    }
    view = idempotent(**REFUSING, guarantee="lease")(aplain)
    claimed = Suspect.claimed

    def made(key: str) -> HttpRequest:
        body, headers = {"card": "1", "amount": 1}, {"Idempotency-Key": key}
        request = RequestFactory().post("/", body, content_type="application/json", headers=headers)
        request.user = user
        return request

    async def closed() -> None:
        loop, remembered, over = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def slow(self: Suspect, call: Any) -> None:
            claimed(self, call)
            loop.call_soon_threadsafe(remembered.set)
            over.wait(20)

        with monkeypatch.context() as patch:
            patch.setattr(Suspect, "claimed", slow)
            task = asyncio.ensure_future(view(made("k1")))
            await asyncio.wait_for(remembered.wait(), 20)
            coroutine = task.get_coro()
            assert coroutine is not None
            try:
                coroutine.close()
            finally:
                over.set()
                others = asyncio.all_tasks() - {asyncio.current_task()}
                await asyncio.gather(*others, return_exceptions=True)

    async_to_sync(closed)()
    assert codes(async_to_sync(view)(made("k2"))) == [201]
    cache.clear()
    assert codes(async_to_sync(view)(made("k1"))) == [201]


def test_what_the_cache_does_not_have_from_us(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts that cannot be read refuse nothing."""
    monkeypatch.setattr(LocMemCache, "add", lambda *args, **kwargs: False)
    monkeypatch.setattr(LocMemCache, "get", lambda *args, **kwargs: "no record")
    assert codes(sender(user)("/refusing/decorator/", "k1")) == [201]


def test_two_clients_are_never_one(user: User) -> None:
    """Another client's equal request is its own, and nothing of it is revealed."""
    assert codes(
        sender(user)("/refusing/decorator/", "k1"),
        sender(UserFactory())("/refusing/decorator/", "k2"),
    ) == [*(201, 201)]


def test_strangers_are_never_one(settings: Any) -> None:
    """Clients that share a scope learn nothing of each other: settings that would refuse one of
    them are refused.
    """
    settings.IDEMPOTENCY = {"ANONYMOUS": "shared"}
    request = RequestFactory().post("/charge/", headers={"Idempotency-Key": "k" * 20})
    with pytest.raises(ConfigurationError, match="each other's requests"):
        idempotent(**REFUSING)(plain)(request)
    assert effects() == 0


def test_without_the_facts(user: User) -> None:
    """A request without all of them is not compared."""
    send = sender(user)
    assert (
        codes(*(send("/refusing/decorator/", f"k{number}", card=None) for number in range(3)))
        == [201] * 3
    )


@pytest.mark.parametrize("url", ["/reporting/", "/async-reporting/"])
def test_report(send: Send, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It runs, and the signal and the log say so; a replay is not reported."""
    caplog.set_level(logging.WARNING, "django_idempotency")
    sent: list[str] = []

    def receive(operation: Any, **_: Any) -> None:
        sent.append(operation.ticket.key)

    signals.suspected.connect(receive)
    try:
        assert (
            codes(send(url, "key-one-1"), send(url, "key-two-2"), send(url, "key-two-2"))
            == [201] * 3
        )
    finally:
        signals.suspected.disconnect(receive)
    assert sent == ["key-two-2"]
    (record,) = [
        record
        for record in caplog.records
        if getattr(record, "idempotency", {}).get("event") == "suspected"
    ]
    assert record.levelname == "WARNING"
    assert effects() == 2


def test_a_flood_is_reported(user: User, caplog: pytest.LogCaptureFixture) -> None:
    """Each refused key is an event."""
    send, sent = sender(user), []

    def receive(operation: Any, **_: Any) -> None:
        sent.append(operation.ticket.key)

    signals.flooded.connect(receive)
    try:
        for number in range(5):
            send("/limited/decorator/", f"k{number}")
    finally:
        signals.flooded.disconnect(receive)
    assert sent == ["k3", "k4"]
    assert caplog.text.count("Flooded: ") == 2


@pytest.mark.parametrize("backend", ["locmem", pytest.param("redis", marks=needs_redis)])
def test_a_race_of_equal_requests(user: User, settings: Any, backend: str) -> None:
    """Of ten at once, each with its own key, one runs."""
    if backend == "redis":
        settings.CACHES = {
            "default": {
                "BACKEND": "django.core.cache.backends.redis.RedisCache",
                "LOCATION": REDIS,
                "KEY_PREFIX": uuid4().hex,
            }
        }
    found = at_once(user, 10, lambda send, number: send("/refusing/lease/", f"k{number}"))
    assert sorted(codes(*found), key=str) == [201, *["possible-duplicate"] * 9]
    assert effects() == 1


def test_both_cost_no_statement(user: User) -> None:
    """An allowed request has the statements that it would have without them; a policy without them
    asks no cache.
    """
    send, counts = sender(user), []
    for url in ("/neither/", "/limited/decorator/", "/refusing/decorator/"):
        with CaptureQueriesContext(connections["default"]) as captured:
            assert send(url, uuid4().hex).status_code == 201
        counts.append(len(captured))
    assert len(set(counts)) == 1


def test_neither_asks_a_cache(user: User, settings: Any) -> None:
    """Without the options no cache is needed."""
    settings.CACHES = {"default": {"BACKEND": f"{__name__}.{Broken.__name__}"}}
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.db"
    assert codes(sender(user)("/neither/", "k1")) == [201]


@pytest.mark.parametrize(
    "fields", [LIMITED, REFUSING, {"guarantee": "lease", "extensions": [OnTakeover(print)]}]
)
def test_a_request_is_not_kept(user: User, fields: dict[str, Any]) -> None:
    """What is noted about it does not keep it, and its uploads, until a garbage collection."""
    body, headers = {"card": "1", "amount": 1}, {"Idempotency-Key": "k1"}
    # A form refers to it.
    request = RequestFactory().post("/", body, content_type="application/json", headers=headers)
    request.user = user
    gone = weakref.ref(request)
    gc.disable()
    try:
        response = idempotent(**fields)(plain)(request)
        assert response.status_code == 201
        del request, response
        assert gone() is None
    finally:
        gc.enable()
