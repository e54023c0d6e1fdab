"""assert_idempotent(): what keeps its promise passes, and each way to break it fails, with a
message to find it.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import AsyncRequestFactory, Client, RequestFactory
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from django_idempotency import BufferedStreams, idempotency_exempt, idempotent, idempotent_function
from django_idempotency.errors import InProgress
from django_idempotency.testing import assert_idempotent, override_idempotency
from testproject.payments.models import Effect

MEMORY = {
    "STORES": {"default": {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}},
    "GUARANTEE": "lease",
}

committed = pytest.mark.django_db(transaction=True)


@pytest.fixture
def memory(settings: Settings) -> None:
    """Keep records in this process: no database is needed."""
    settings.IDEMPOTENCY = MEMORY


class Work:
    """Work that must happen once, and counts how often it did."""

    def __init__(self) -> None:
        self.runs = 0
        self._lock = threading.Lock()

    def __call__(self) -> int:
        time.sleep(0.02)  # long enough for the others to arrive
        with self._lock:
            self.runs += 1
            return self.runs

    async def later(self) -> int:
        await asyncio.sleep(0.02)
        self.runs += 1
        return self.runs


@pytest.fixture
def work() -> Work:
    return Work()


def guarded_function(work: Callable[[], Any]) -> Callable[[], Any]:
    @idempotent_function(key_prefix="charge")
    def charge(order: int = 17) -> Any:
        return work()

    return charge


def problems(act: Any, **asked: Any) -> str:
    """Return what assert_idempotent reports about an act."""
    with pytest.raises(AssertionError) as raised:
        assert_idempotent(act, **{"times": 5, **asked})
    return str(raised.value)


# ---------------------------------------------------------------------------------------- functions


@pytest.mark.usefixtures("memory")
def test_a_guarded_function_passes(work: Work) -> None:
    """Twenty at once and one alone: one run, and its result for all."""

    @idempotent_function(key="order", key_prefix="charge")
    def charge(order: int) -> int:
        return work()

    assert assert_idempotent(lambda: charge(17), effects=lambda: work.runs) == 1
    assert work.runs == 1


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("asked", "expected"), [({}, 21), ({"times": 3}, 4), ({"times": 1}, 2)], ids=str
)
@pytest.mark.parametrize("concurrent", [True, False])
def test_how_many_calls_there_are(asked: dict[str, Any], expected: int, concurrent: bool) -> None:
    """As many as requested, or twenty; and the one that comes alone.

    A call that is repeated is counted once.
    """
    called: list[None] = []
    answered: list[int] = []

    @idempotent_function(key="order", key_prefix="charge")
    def charge(order: int) -> int:
        called.append(None)
        return order

    def act() -> int:
        result = charge(17)
        answered.append(result)
        return result

    assert_idempotent(act, concurrent=concurrent, **asked)
    assert (len(called), len(answered)) == (1, expected)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("how", ["function", "partial", "object", "lambda", "one by one"])
def test_a_guarded_coroutine_function_passes(work: Work, how: str) -> None:
    """Coroutines run as tasks of one event loop; a function that only returns one is awaited in its
    thread.
    """

    @idempotent_function(key="order", key_prefix="charge")
    async def charge(order: int = 17) -> int:
        return await work.later()

    class Charging:
        async def __call__(self) -> int:
            return await charge(17)

    act: Any = {
        "partial": partial(charge, 17),
        "object": Charging(),
        "lambda": lambda: charge(17),
    }.get(how, charge)
    assert assert_idempotent(act, effects=lambda: work.runs, concurrent=how != "one by one") == 1


def test_an_unguarded_function_fails(work: Work) -> None:
    """The message says that nothing guards it, how often the effect occurred, and the results."""
    said = problems(work, effects=lambda: work.runs)
    assert "Not idempotent, of 6 calls" in said
    assert "Nothing was guarded" in said
    assert "effects() rose by 6, not by 1" in said
    assert "6 different responses" in said
    assert "1 call got 3" in said


@pytest.mark.usefixtures("memory")
def test_a_guard_that_is_off_fails(work: Work) -> None:
    """The message says why it is off."""
    charge = guarded_function(work)
    with override_idempotency(enabled=False):
        assert "idempotency is off" in problems(charge)


@pytest.mark.usefixtures("memory")
def test_an_effect_outside_the_guard_fails(work: Work) -> None:
    """Everything looks right but for the effects."""

    @idempotent_function(key_prefix="charge")
    def charge(order: int = 17) -> str:
        return "charged"

    def act() -> str:
        work()
        return charge()

    # At once, a busy call would repeat its act.
    said = problems(act, effects=lambda: work.runs, concurrent=False)
    assert said.splitlines()[1:2] == ["  effects() rose by 6, not by 1."]
    assert "The guards said: claimed 1" in said


@pytest.mark.usefixtures("memory")
def test_the_calls_are_made_at_once() -> None:
    """All are inside before the first one continues; then one comes alone."""
    inside = threading.Barrier(5)
    seen: list[int] = []
    charge = guarded_function(lambda: None)

    def act() -> None:
        if len(seen) < 5:
            seen.append(inside.wait(timeout=10))
        charge()

    assert_idempotent(act, times=5)
    assert sorted(seen) == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("memory")
def test_a_busy_answer_in_a_project_s_own_words(work: Work) -> None:
    """The guard's own status counts: the call is repeated."""
    charge = guarded_function(work)

    def act() -> Any:
        try:
            return charge()
        except InProgress:
            return "come back later"

    assert assert_idempotent(act, times=5, effects=lambda: work.runs) == 1


@pytest.mark.usefixtures("memory")
def test_a_new_key_for_each_retry_fails(work: Work) -> None:
    """The commonest mistake: each retry makes a new key."""

    @idempotent_function(key="attempt", key_prefix="charge")
    def charge(attempt: str) -> int:
        return work()

    assert "The calls came under 6 different keys" in problems(lambda: charge(str(uuid4())))


@pytest.mark.usefixtures("memory")
def test_a_payload_that_changes_fails(work: Work) -> None:
    """The mismatch is shown."""
    now = itertools.count()

    @idempotent_function(key="order", validate="sent", key_prefix="charge")
    def charge(order: int, sent: int) -> int:
        return work()

    said = problems(lambda: charge(17, next(now)))
    assert "5 calls raised: RequestMismatch" in said
    assert "mismatched 5" in said


@pytest.mark.usefixtures("memory")
def test_work_that_fails_and_is_run_again_fails(work: Work) -> None:
    """An exception frees the key, so the next call runs; the report shows that it was released."""

    @idempotent_function(key_prefix="charge")
    def charge(order: int = 17) -> int:
        work()
        raise OSError("the provider hung up")

    with pytest.raises(
        AssertionError, match="The work ran 6 times, not once, in the calls"
    ) as raised:
        assert_idempotent(charge, times=5)
    assert "6 calls raised: OSError" in str(raised.value)
    assert "released 6" in str(raised.value)
    assert isinstance(raised.value.__cause__, OSError)


@pytest.mark.usefixtures("memory")
def test_an_exception_may_be_the_answer(work: Work) -> None:
    """A kept exception is raised again, in every call."""

    @idempotent_function(keep_exceptions=LookupError, key_prefix="charge")
    def charge(order: int = 17) -> int:
        work()
        raise LookupError("no such card")

    answer = assert_idempotent(charge, raises=LookupError, effects=lambda: work.runs)
    assert isinstance(answer, LookupError)
    assert answer.args == ("no such card",)


def test_different_exceptions_are_different_answers() -> None:
    """This holds for expected exceptions, too."""
    number = itertools.count()

    def act() -> None:
        raise LookupError(next(number) % 2)

    said = problems(act, raises=LookupError)
    assert "There are 2 different responses." in said
    assert "3 calls got (0,)" in said


@pytest.mark.usefixtures("memory")
def test_a_result_of_another_type_fails() -> None:
    """A replay must equal the first result, including its type."""
    results: Iterator[Any] = itertools.chain([1], itertools.repeat(True))
    charge = guarded_function(lambda: None)

    def act() -> Any:
        charge()
        return next(results)

    assert "2 different responses" in problems(act, concurrent=False)


@pytest.mark.usefixtures("memory")
def test_nested_guards_are_the_first_run_s_own(work: Work) -> None:
    """Only the guard that every call reaches has the call's key."""

    @idempotent_function(key_prefix="inner")
    def inner(order: int = 17) -> int:
        return work()

    @idempotent_function(key_prefix="outer")
    def outer(order: int = 17) -> int:
        return inner()

    assert_idempotent(outer, times=5, effects=lambda: work.runs)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("first", ["charge", "notify"])
def test_a_second_guard_with_a_new_key_for_each_call_fails(work: Work, first: str) -> None:
    """One guard keeps its promise, and beside it a receipt goes out with every retry."""
    charge = guarded_function(lambda: None)

    @idempotent_function(key_prefix="notify")
    def notify(number: str) -> None:
        work()

    def act() -> None:
        if first == "charge":
            charge()
        notify(uuid4().hex)
        charge()

    assert "did work under keys that the first call had not" in problems(act, concurrent=False)
    assert work.runs == 6


@pytest.mark.usefixtures("memory")
def test_what_others_do_meanwhile_does_not_count(work: Work) -> None:
    """Their keys are not ours."""
    stop = threading.Event()
    other = idempotent_function(key="n", key_prefix="other")(lambda n: n)
    numbers = itertools.count()

    def go_on() -> None:
        while not stop.is_set():
            other(next(numbers))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        assert_idempotent(guarded_function(work), times=5)
    finally:
        stop.set()
        thread.join()


@pytest.mark.usefixtures("memory")
def test_a_known_key_fails(work: Work) -> None:
    """A test that begins with an old record proves nothing."""
    charge = guarded_function(work)
    charge()
    assert "The work ran 0 times, not once: its key was known before" in problems(charge)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_work_without_an_end_fails(kind: str) -> None:
    """It fails within the bound, without waiting for calls that hang."""
    release = threading.Event()

    @idempotent_function(key_prefix="charge")
    def charge(order: int = 17) -> None:
        release.wait(20)

    @idempotent_function(key_prefix="acharge")
    async def acharge(order: int = 17) -> None:
        await asyncio.sleep(20)

    began, before = time.monotonic(), set(threading.enumerate())
    said = problems(charge if kind == "sync" else acharge, timeout=0.3)
    assert "calls got no response within 0.3 s" in said
    assert time.monotonic() - began < 10
    release.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)  # or it would call again, in the store of the next test


def test_an_event_loop_is_refused() -> None:
    """The error says what to type, and that works."""

    async def test() -> None:
        with pytest.raises(RuntimeError, match="await sync_to_async"):
            assert_idempotent(work)
        with pytest.raises(AssertionError, match="Nothing was guarded"):
            await sync_to_async(assert_idempotent)(work, times=2)

    work = Work()
    asyncio.run(test())


# ----------------------------------------------------------------------------------------- requests


def effect() -> JsonResponse:
    time.sleep(0.02)
    return JsonResponse({"id": Effect.objects.create(label="view").pk}, status=201)


@idempotent()
def guarded(request: HttpRequest) -> HttpResponse:
    return effect()


@csrf_exempt
@idempotent(anonymous="shared")
def shared(request: HttpRequest) -> HttpResponse:
    return effect()


@csrf_exempt
@idempotency_exempt
def unguarded(request: HttpRequest) -> HttpResponse:
    return effect()


@idempotency_exempt
def too_late(request: HttpRequest) -> HttpResponse:
    """Charge, and only then look at the key."""
    charged = effect()
    return idempotent()(lambda _: charged)(request)


@idempotent(scope=lambda request: uuid4().hex)
def keyed_wrongly(request: HttpRequest) -> HttpResponse:
    return effect()


@idempotent(guarantee="lease", anonymous="shared")
async def aguarded(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0.02)
    return JsonResponse({"id": (await Effect.objects.acreate(label="aview")).pk}, status=201)


@idempotent()
def refusing(request: HttpRequest) -> HttpResponse:
    effect()
    return HttpResponse(status=400)


@idempotent(extensions=[BufferedStreams()])
def streaming(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse([effect().content])


urlpatterns = [
    path("guarded/", guarded),
    path("shared/", shared),
    path("unguarded/", unguarded),
    path("too-late/", too_late),
    path("keyed-wrongly/", keyed_wrongly),
    path("aguarded/", aguarded),
    path("refusing/", refusing),
    path("streaming/", streaming),
]

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
HEADERS = {"Idempotency-Key": KEY}


@pytest.fixture
def post(user: User) -> Callable[..., HttpRequest]:
    """Return a function that makes a request of the user's, with a key."""

    def post(url: str, factory: Any = RequestFactory, headers: Any = HEADERS) -> Any:
        request = factory().post(url, {"amount": 5}, "application/json", headers=headers)
        request.user = user
        return request

    return post


@committed
@pytest.mark.urls(__name__)
@pytest.mark.parametrize("url", ["/guarded/", "/streaming/"])
def test_a_guarded_view_passes(post: Callable[..., HttpRequest], url: str) -> None:
    """The request goes through the whole handler, as its user."""
    assert_idempotent(post(url), times=8, effects=Effect.objects.count)


@committed
@pytest.mark.parametrize(
    "url",
    [
        "/api/charges/",
        "/plain/charges/",
        "/middleware/charges/",
        "/middleware/api/charges/",
        "/api/payouts/",
    ],
)
def test_every_entry_point_passes(user: User, url: str) -> None:
    """DRF takes the request's user too."""
    request = RequestFactory().post(
        url, {"amount": 5, "currency": "inr"}, "application/json", headers=HEADERS
    )
    request.user = user
    answer = assert_idempotent(request, times=5, effects=Effect.objects.count)
    assert answer.status_code == 201
    assert Effect.objects.get().idempotency_key == KEY


@committed
@pytest.mark.urls(__name__)
def test_an_async_request_passes(post: Callable[..., HttpRequest]) -> None:
    """Requests from AsyncRequestFactory run in tasks."""
    assert_idempotent(
        post("/aguarded/", AsyncRequestFactory), times=8, effects=Effect.objects.count
    )


@committed
@pytest.mark.urls(__name__)
def test_a_client_in_a_function_passes(user: User) -> None:
    """A function is for tests that send more than one request."""

    def act() -> Any:
        client = Client()
        client.force_login(user)
        return client.post("/guarded/", headers=HEADERS)

    assert_idempotent(act, times=5, effects=Effect.objects.count)


@committed
@pytest.mark.urls(__name__)
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/unguarded/", "Nothing was guarded"),
        ("/too-late/", "effects() rose by "),
        ("/keyed-wrongly/", "under 6 different keys"),
        ("/refusing/", "The work ran 6 times, not once"),  # a 400 is dropped
        ("/no-such-url/", "Nothing was guarded"),
    ],
)
def test_a_wrong_view_fails(
    post: Callable[..., HttpRequest], user: User, url: str, said: str
) -> None:
    """Unguarded, guarded after the effect, under a key that changes, or with a response that is not
    remembered.
    """
    request = post(url)
    if url == "/keyed-wrongly/":
        del request.user
    assert said in problems(request, effects=Effect.objects.count)


@committed
@pytest.mark.urls(__name__)
def test_a_request_without_a_key_fails(post: Callable[..., HttpRequest]) -> None:
    """The message asks whether the call sends one."""
    said = problems(post("/guarded/", headers={}), effects=Effect.objects.count)
    assert "does the call send a key" in said
    assert "6 of 6 responses have no Idempotent-Replayed" in said
    assert "1 call got 201 {" in said


@committed
@pytest.mark.urls(__name__)
def test_a_server_elsewhere(live_server: LiveServer) -> None:
    """Its guards cannot be observed: the responses say which is a replay, and which is busy."""
    import httpx

    def act(url: str) -> httpx.Response:
        return httpx.post(f"{live_server.url}{url}", headers={"Idempotency-Key": KEY * 2})

    assert_idempotent(partial(act, "/shared/"), times=4, effects=Effect.objects.count)
    assert "Nothing was guarded" in problems(partial(act, "/unguarded/"), times=3)


def test_a_bare_request_is_refused() -> None:
    """It has no body that could be read again."""
    with pytest.raises(TypeError, match="RequestFactory"):
        assert_idempotent(HttpRequest())


# ----------------------------------------------------------------------------- inside a transaction


@pytest.mark.django_db
@pytest.mark.urls(__name__)
def test_inside_a_test_case_it_names_what_to_type(post: Callable[..., HttpRequest]) -> None:
    """Threads would not see the user; nothing has run."""
    with pytest.raises(RuntimeError, match=r"django_db\(transaction=True\).*TransactionTestCase"):
        assert_idempotent(post("/guarded/"))
    assert Effect.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.urls(__name__)
@pytest.mark.parametrize("url", ["/guarded/", "/streaming/"])
def test_inside_a_test_case_one_by_one(post: Callable[..., HttpRequest], url: str) -> None:
    """The calls use the test's own connection, which stays open."""
    assert_idempotent(post(url), times=3, concurrent=False, effects=Effect.objects.count)
    assert transaction.get_connection().in_atomic_block


@pytest.mark.django_db
@pytest.mark.usefixtures("memory")
def test_inside_a_test_case_with_records_in_memory(work: Work) -> None:
    """No record is in that transaction, so the calls run one by one without being asked to."""
    threads = set()

    @idempotent_function(key_prefix="charge")
    def charge(order: int = 17) -> int:
        threads.add(threading.current_thread())
        return Effect.objects.create(label="work").pk

    assert_idempotent(charge, times=3, effects=Effect.objects.count)
    assert threads == {threading.current_thread()}


@pytest.mark.django_db
@pytest.mark.urls(__name__)
def test_tasks_inside_a_test_case(post: Callable[..., HttpRequest]) -> None:
    """They share the test's connection."""
    assert_idempotent(
        post("/aguarded/", AsyncRequestFactory), times=3, effects=Effect.objects.count
    )
