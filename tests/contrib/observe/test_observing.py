"""`mode="observe"`: each response is the one that there would be without us, and what a guard would
do is reported.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.files.uploadhandler import MemoryFileUploadHandler
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from pytest_django import Settings
from rest_framework.decorators import api_view

from django_idempotency import idempotency_exempt, idempotent
from django_idempotency.contrib.observe import observing
from django_idempotency.core.dialects import Dialect
from django_idempotency.core.records import Status
from django_idempotency.errors import ConfigurationError, StoreUnavailable
from django_idempotency.http.exchange import DEGRADED, HEADER, REPLAYED
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.memory import MemoryStore
from testproject.payments.models import Effect
from testproject.urls import urlpatterns as project_urls
from tests.support.dialects import changed
from tests.support.observed import OBSERVE, Observed

from ...entry_points import views
from ...entry_points.conftest import CHARGE, KEY, Connect, Sender, effects

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def bare(response: Any) -> dict[str, str]:
    """Return the headers of a response, without the one that we may add."""
    return {name: value for name, value in response.items() if name != "Idempotency-Status"}


# ------------------------------------------------------------------------------ at each entry point


def test_every_request_runs_and_a_retry_is_seen(entry_point: Sender, observed: Observed) -> None:
    """A retry runs again, though a guard would have replayed it; only the status header says that
    somebody watches.
    """
    responses = [entry_point(), entry_point()]
    assert [(each.status_code, each["Idempotency-Status"]) for each in responses] == [
        (201, "observed")
    ] * 2
    assert effects() == 2
    assert observed.would == ["run", "replay"]


def test_another_body_runs_too(entry_point: Sender, observed: Observed) -> None:
    """What would be 422 is not refused."""
    entry_point()
    assert entry_point({"amount": 1, "currency": "inr"}).status_code == 201
    assert observed.would == ["run", "request-mismatch"]


@pytest.mark.parametrize("key", ["", "a,b", "k" * 256])
def test_a_malformed_key_runs_too(entry_point: Sender, observed: Observed, key: str) -> None:
    """What would be 400 is not refused, and nothing is stored."""
    assert entry_point(key=key).status_code == 201
    assert observed.would == ["key-malformed"]
    assert not IdempotencyRecord.objects.exists()


def test_a_missing_key_runs_too(
    entry_point: Sender, observed: Observed, settings: Settings
) -> None:
    """A route that requires a key still serves those that send none."""
    settings.IDEMPOTENCY = {**OBSERVE, "REQUIRED": True}
    response = entry_point(key=None)
    assert (response.status_code, response["Idempotency-Status"]) == (201, "observed")
    assert observed.would == ["key-missing"]


def test_a_policy_that_contradicts_the_settings_runs_too(
    entry_point: Sender, observed: Observed, settings: Settings
) -> None:
    """A guard would raise; while it only observes, a wrong setting is reported."""
    settings.IDEMPOTENCY = {**OBSERVE, "PROFILE": changed(Dialect, window=10**8)}
    response = entry_point()
    assert (response.status_code, response["Idempotency-Status"]) == (201, "observed")
    assert observed.would == ["error"]
    assert isinstance(observed.errors[0], ConfigurationError)


def test_a_refused_request_may_be_corrected(entry_point: Sender, observed: Observed) -> None:
    """A 400 is not remembered, as it would not be by a guard."""
    assert entry_point({"amount": -1, "currency": "inr"}).status_code == 400
    assert entry_point().status_code == 201
    assert observed.would == ["run", "run"]


@pytest.mark.parametrize("atomic", [False, True])
def test_a_broken_store_does_not_matter(
    entry_point: Sender,
    observed: Observed,
    settings: Settings,
    atomic: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The response is the same; the first failure is reported, and then the store is left alone for
    a while.
    """
    settings.IDEMPOTENCY = {
        **OBSERVE,
        "STORES": {"default": {"BACKEND": f"{__name__}.Broken"}},
        "GUARANTEE": "atomic" if atomic else "lease",
    }
    responses = [entry_point(), entry_point()]
    assert [each.status_code for each in responses] == [201, 201]
    # A store that cannot keep the guarantee is a mistake in the settings.
    assert observed.would == (["error", "error"] if atomic else ["store-unavailable", "unknown"])
    assert effects() == 2


class Broken(MemoryStore):
    def claim(self, ticket: Any) -> Any:
        raise StoreUnavailable


def test_atomic_requests_are_as_without_us(
    entry_point: Sender, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view runs in Django's transaction, and the record is written after it."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    with CaptureQueriesContext(connection) as captured:
        assert entry_point().status_code == 201
    statements = [query["sql"] for query in captured.captured_queries]
    assert entry_point().status_code == 201
    assert observed.would == ["run", "replay"]
    ours = [n for n, sql in enumerate(statements) if IdempotencyRecord._meta.db_table in sql]
    theirs = [n for n, sql in enumerate(statements) if Effect._meta.db_table in sql]
    assert min(ours) > max(theirs)


# --------------------------------------------------------------------------------------- the record


def test_it_is_never_replayed(entry_point: Sender, observed: Observed, settings: Settings) -> None:
    """What was observed was not guarded: the first request under an enforcing policy runs, and the
    next is a replay.
    """
    entry_point()
    settings.IDEMPOTENCY = {}
    assert [each["Idempotency-Status"] for each in (entry_point(), entry_point())] == [
        "created",
        "replayed",
    ]
    assert effects() == 2


def test_it_holds_no_response(entry_point: Sender, observed: Observed) -> None:
    """Its scope says what it is, and its body and headers are empty."""
    entry_point()
    record = IdempotencyRecord.objects.get()
    assert record.scope.startswith("mode:observe/user:auth.user:")
    assert (record.status, record.response_status, bytes(record.response_body or b"")) == (
        Status.COMPLETED,
        201,
        b"",
    )


def test_a_concurrent_request_is_told_from_a_retry(
    user: User, connect: Connect, observed: Observed
) -> None:
    """Two that were under way at the same time are no retry: a guard would have said 409 to one of
    them.
    """
    send = connect("/twice/", user)

    def again(request: HttpRequest) -> None:
        observation: Any = observing.observation_of(request)
        observation.began -= 60  # a slow view
        send()

    MEANWHILE.append(again)
    assert send().status_code == 200
    assert observed.would == ["run", "in-progress"]


def test_a_response_that_could_not_be_stored(
    user: User, connect: Connect, observed: Observed
) -> None:
    """A retry of a streamed response would get 409."""
    send = connect("/answers/large-stream/", user)
    for _ in range(2):
        response = send()
        assert response.status_code == 201
        assert len(b"".join(response.streaming_content)) > 100_000  # it reaches the client
    assert observed.would == ["run", "response-not-stored"]


def test_no_record_inside_the_projects_transaction(
    user: User, connect: Connect, observed: Observed
) -> None:
    """Another request would wait for it, so it is looked up once that is committed."""
    send = connect("/inside/", user)
    assert send().status_code == 200
    assert observed.would == ["run"]
    assert IdempotencyRecord.objects.count() == 1


# ------------------------------------------------------------------------------------ as without us


def test_the_session_is_not_read_for_the_view(
    user: User, connect: Connect, observed: Observed
) -> None:
    """A response that does not depend on the user does not begin to vary by cookie."""
    response = connect("/plain/", user)()
    assert "Vary" not in response
    assert observed.would == ["run"]


@pytest.mark.parametrize("how", [*views.READERS, "handlers"])
@pytest.mark.parametrize("size", [10, 2 * 1024 * 1024])
def test_the_view_reads_what_was_sent(user: User, observed: Observed, how: str, size: int) -> None:
    """A short body is compared however the view reads it, a long one only if the view has left it
    readable.
    """
    client = Client()
    client.force_login(user)
    sent: dict[str, Any] = {"data": {"text": "x" * size}}
    if how == "json":
        sent = {"data": f'{{"text": "{"x" * size}"}}', "content_type": "application/json"}
    responses = [
        client.post(f"/{kind}/{how}/", headers={"Idempotency-Key": KEY}, **sent)
        for kind in ("bare", "reading")
    ]
    first, second = (
        (each.status_code, each.content.partition(b", ")[0], bare(each)) for each in responses
    )
    assert first == second
    assert observed.would == ["run"]


def test_headers_of_the_view_stay(user: User, connect: Connect, observed: Observed) -> None:
    """What a view has copied from another service reaches the client, as without us."""
    response = connect("/copied/", user)()
    assert [response[name] for name in (HEADER, REPLAYED, DEGRADED)] == ["observed", "true", "true"]


def test_an_anonymous_client_is_as_with_a_guard(observed: Observed) -> None:
    """The decorator would refuse its key, and the middleware would let it run unguarded, and
    does.
    """
    client = Client()
    client.post("/plain/", headers={"Idempotency-Key": KEY})
    assert observed.would == ["scope-required"]
    response = client.post("/middleware/open/", headers={"Idempotency-Key": KEY})
    assert (response["Idempotency-Status"], observed.unguarded) == ("unguarded", ["nobody"])


def test_a_function_of_the_project_that_raises(
    user: User, connect: Connect, observed: Observed
) -> None:
    """It is reported with its exception, and changes nothing."""
    assert connect("/raising/", user)().status_code == 200
    assert observed.would == ["error"]
    assert isinstance(observed.errors[0], RuntimeError)


def test_what_the_middleware_cannot_guard_runs(
    user: User, observed: Observed, settings: Settings
) -> None:
    """A view that a guard would refuse with an exception responds."""
    response = async_to_sync(_async_post)(user)
    assert (response.status_code, response["Idempotency-Status"]) == (200, "observed")
    assert observed.would == ["error"]


async def _async_post(user: User) -> Any:
    client = AsyncClient()
    await client.aforce_login(user)
    return await client.post("/middleware/async/", headers={"Idempotency-Key": KEY})


def test_an_async_view(user: User, observed: Observed) -> None:
    """The user and the store are asked in a thread."""

    async def send() -> list[Any]:
        client = AsyncClient()
        await client.aforce_login(user)
        return [await client.post("/async/", headers={"Idempotency-Key": KEY}) for _ in range(2)]

    assert ["Vary" in response for response in async_to_sync(send)()] == [False, False]
    assert observed.would == ["run", "replay"]


def test_below_api_view(
    user: User, connect: Connect, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under ATOMIC_REQUESTS it is looked up once the request's transaction is committed."""
    assert connect("/below/", user)().status_code == 200
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert connect("/below/", user)().status_code == 200
    assert observed.would == ["run", "replay"]


# ------------------------------------------------------------------------------ request.idempotency


def test_the_view_has_its_handle(
    user: User, connect: Connect, observed: Observed, settings: Settings
) -> None:
    """A derived key is what a guard would derive if the key were new, so a retry at the provider is
    one, too.
    """
    send = connect("/described/", user)
    first, again, other = (send(body).json() for body in (CHARGE, CHARGE, {}))
    assert (first["key"], first["attempt"], first["lost"]) == (KEY, 1, False)
    assert again == first
    assert other["stripe"] != first["stripe"]
    settings.IDEMPOTENCY = {}
    assert send().json() == first


@pytest.mark.parametrize("key", ["", "é", None])
def test_without_a_good_key_each_request_is_its_own(
    user: User, connect: Connect, observed: Observed, key: str | None
) -> None:
    """Two payments must not become one at the provider."""
    send = connect("/described/", user)
    first, second = send(key=key).json(), send(key=key).json()
    assert first["stripe"] != second["stripe"]
    assert 0 < len(first["key"]) <= 255


def test_the_log(entry_point: Sender, observed: Observed, caplog: pytest.LogCaptureFixture) -> None:
    """One record for each request; one that a guard would have changed is louder."""
    with caplog.at_level(logging.DEBUG, "django_idempotency"):
        for body in (CHARGE, CHARGE, {"amount": 1, "currency": "inr"}):
            entry_point(body)
    records = [record for record in caplog.records if record.name == "django_idempotency"]
    assert [record.levelname for record in records] == ["DEBUG", "INFO", "WARNING"]
    assert {record.__dict__["idempotency"]["event"] for record in records} == {"observed"}
    assert KEY not in caplog.text


# -------------------------------------------------------------------------------------------- views


@idempotent()
def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse(views.work())


@idempotent(required=True)
def described(request: HttpRequest) -> HttpResponse:
    handle: Any = request.idempotency  # type: ignore[attr-defined]
    return JsonResponse(
        {
            "key": handle.key,
            "attempt": handle.attempt,
            "lost": handle.lost,
            "stripe": handle.derive("stripe"),
        }
    )


#: Called once by the view that is called next.
MEANWHILE: list[Callable[[HttpRequest], None]] = []


@idempotent()
def twice(request: HttpRequest) -> HttpResponse:
    if MEANWHILE:
        MEANWHILE.pop()(request)
    return HttpResponse(views.work())


@idempotent()
def within(request: HttpRequest) -> HttpResponse:
    return HttpResponse(views.work())


def inside(request: HttpRequest) -> HttpResponse:
    with transaction.atomic():
        return within(request)


def no_scope(request: HttpRequest) -> bytes:
    raise RuntimeError("swordfish")


@idempotent(fingerprint=no_scope)
def raising(request: HttpRequest) -> HttpResponse:
    return HttpResponse(views.work())


@idempotent(guarantee="lease")
async def async_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


async def async_under_middleware(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


def reading(request: HttpRequest, how: str) -> HttpResponse:
    if how != "handlers":
        return views.reading(request, how)
    request.upload_handlers = [MemoryFileUploadHandler(request)]
    return views.reading(request, "form")


@api_view(["POST"])
@idempotent()
def below(request: Any) -> HttpResponse:
    return HttpResponse(views.work())


urlpatterns = [
    *project_urls,
    path("plain/", plain),
    path("described/", described),
    path("twice/", twice),
    path("inside/", inside),
    path("raising/", raising),
    path(
        "copied/",
        idempotent()(
            lambda request: HttpResponse(headers={HEADER: "x", REPLAYED: "true", DEGRADED: "true"})
        ),
    ),
    path("async/", async_view),
    path("below/", below),
    path("answers/<kind>/", idempotent()(views.answers)),
    path("reading/<how>/", idempotent()(reading)),
    path("bare/<how>/", idempotency_exempt(functools.partial(reading))),
    path("middleware/async/", async_under_middleware),
    path("middleware/open/", views.pay),
]
