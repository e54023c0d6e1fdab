"""Every request and call is counted once, by what became of it, at every entry point; without a
meter nothing is.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path
from pytest_django.fixtures import Settings

from django_idempotency import OnReplay, idempotent, idempotent_function
from django_idempotency.checks.settings import check_settings
from django_idempotency.contrib.observe import OBSERVE
from django_idempotency.contrib.outbox import send
from django_idempotency.contrib.outbox.relaying import Relay
from django_idempotency.core.records import Status
from django_idempotency.errors import InProgress, KeyMissing, RequestMismatch, StoreUnavailable
from django_idempotency.instrumentation.meters import Meter, Metric, meters
from django_idempotency.instrumentation.outcomes import OUTCOMES
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore
from testproject.urls import urlpatterns as project_urls

from ..entry_points.conftest import CHARGE, KEY, Sender, connect, entry_point
from ..support.meters import RecordingMeter, installed

__all__ = ["connect", "entry_point"]  # fixtures

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


@idempotent(guarantee="lease", anonymous="shared", wait=5)
def waiting(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


@idempotent(anonymous="shared", required=True, max_body=0)
def forgetful(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


@idempotent(anonymous="shared", mode=OBSERVE)
def watched(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


@idempotent(anonymous="shared", key_format="uuid7")
def dated(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


@idempotent(anonymous="shared", guarantee="lease", on_store_failure="open")
def optimistic(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


@idempotent(anonymous="shared")
def order(request: HttpRequest, number: int) -> HttpResponse:
    return JsonResponse({}, status=201)


@idempotent(anonymous="shared", extensions=[OnReplay(lambda request, response: 1 / 0)])
def broken_replay(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


VIEWS = {
    view.__name__: view for view in (waiting, forgetful, watched, dated, optimistic, broken_replay)
}
urlpatterns = [
    *project_urls,
    *(path(f"{name}/", view) for name, view in VIEWS.items()),
    path("orders/<int:number>/", order),
]


@pytest.fixture
def meter() -> Iterator[RecordingMeter]:
    made = RecordingMeter()
    with installed(made):
        yield made


def post(name: str, key: str | None = KEY, **headers: str) -> Any:
    sent = headers | ({} if key is None else {"Idempotency-Key": key})
    return Client(raise_request_exception=False).post(
        f"/{name}/", CHARGE, "application/json", headers=sent
    )


def crash() -> None:
    """Make every record that of an owner that died."""
    past = datetime.now(timezone.utc) - timedelta(minutes=5)
    IdempotencyRecord.objects.update(
        status=Status.RUNNING, owner=uuid4(), lease_until=past, completed_at=None
    )


# ----------------------------------------------------------------------------- at every entry point


def test_every_entry_point_counts(entry_point: Sender, meter: RecordingMeter) -> None:
    """First, replay, mismatch, malformed, takeover, and a request without a key, each once."""
    entry_point()
    entry_point()
    entry_point({"amount": 1, "currency": "inr"})
    entry_point(key="no, comma")
    crash()
    entry_point()
    keyless = "missing" if entry_point(key=None).status_code == 400 else "unkeyed"
    sources = {source for source, _, _ in meter.requests}
    assert meter.outcomes == ["executed", "replayed", "mismatch", "invalid", "taken_over", keyless]
    source = sources.pop()
    assert not sources
    assert source.store == "default"
    assert f"/{source.route.removesuffix('$')}" == entry_point.url
    expected = (
        "rest_framework"
        if "api" in entry_point.url
        else entry_point.url.split("/")[1].replace("plain", "decorator")
    )
    assert source.entry_point == expected


def test_no_label_has_an_id_of_the_path(meter: RecordingMeter) -> None:
    """The route is the pattern, so that the number of label values is that of the routes."""
    for number in (17, 18):
        post(f"orders/{number}", str(uuid4()) * 2)
    assert {source.route for source, _, _ in meter.requests} == {"orders/<int:number>/"}
    assert meter.outcomes == ["executed", "executed"]


def test_safe_methods_are_not_counted(meter: RecordingMeter) -> None:
    Client().get("/forgetful/", headers={"Idempotency-Key": KEY})
    assert meter.requests == []


def test_refusals(meter: RecordingMeter) -> None:
    """Without a key, without a stored body, with a key that is too old."""
    post("forgetful", None)
    post("forgetful")
    post("forgetful")
    post("dated", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f")
    post("orders/1", "short")
    assert meter.outcomes == ["missing", "executed", "not_stored", "late", "invalid"]


def test_a_replay_whose_hook_raises(meter: RecordingMeter) -> None:
    """It is a replay, although its response is a 500."""
    post("broken_replay")
    assert post("broken_replay").status_code == 500
    assert meter.outcomes == ["executed", "replayed"]


def test_a_refusal_about_a_known_key(meter: RecordingMeter) -> None:
    """A trace of a mismatch has the hash of its key; one without a record has none."""
    post("forgetful")
    Client(raise_request_exception=False).post(
        "/forgetful/", {"a": 1}, "application/json", headers={"Idempotency-Key": KEY}
    )
    post("forgetful", None)
    hashes = [None if facts is None else facts.key_hash for _, _, facts in meter.requests]
    assert hashes == [IdempotencyRecord.objects.get().pk.hex[:12]] * 2 + [None]


def test_busy_and_waited(meter: RecordingMeter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that waits is counted when the wait is over, with its length."""
    # A slot is free.
    monkeypatch.setattr("django_idempotency.engine.waiting.wait_slots.most", lambda: 10)
    post("waiting")
    now = datetime.now(timezone.utc)
    record = IdempotencyRecord.objects.get()
    IdempotencyRecord.objects.update(
        status=Status.RUNNING, owner=uuid4(), lease_until=now + timedelta(hours=1)
    )

    class Finishing(Meter):
        """Lets the first request finish while the second one waits."""

        def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
            if labels.get("operation") == "claim":
                record.save()

    meter.requests.clear()
    with installed(meter, Finishing()):
        assert post("waiting").status_code == 201
    assert meter.outcomes == ["waited"]
    assert [wait > 0 for wait in meter.values("wait.duration")] == [True]


def test_observed_and_degraded(meter: RecordingMeter, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs without a guard is not counted as executed under one."""
    post("watched")

    def away(*_: Any) -> Any:
        raise StoreUnavailable

    monkeypatch.setattr(type(stores["default"]), "claim", away)
    post("optimistic")
    post("orders/1", KEY * 2)
    assert meter.outcomes == ["observed", "degraded", "store_error"]


def test_what_follows_the_claim_is_not_counted_again(
    meter: RecordingMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose settle fails has been counted: it ran."""
    from django_idempotency.engine.operation import AtomicOperation
    from django_idempotency.errors import OutcomeUnknown

    settle = AtomicOperation.settle

    def fails(*given: Any, **more: Any) -> None:
        settle(*given, **more)
        raise OutcomeUnknown

    monkeypatch.setattr(AtomicOperation, "settle", fails)
    assert post("orders/1", KEY * 2).status_code == 503
    assert meter.outcomes == ["executed"]


# ---------------------------------------------------------------------------------------- functions


@idempotent_function(key="order", validate="amount", guarantee="lease")
def charge(order: str | None, amount: int) -> int:
    return amount


def test_functions_count(meter: RecordingMeter) -> None:
    """A call, a replay, a mismatch, a busy one, one without a key."""
    charge("o-1", 5)
    charge("o-1", 5)
    with pytest.raises(RequestMismatch):
        charge("o-1", 6)
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    IdempotencyRecord.objects.update(
        status=Status.RUNNING, owner=uuid4(), lease_until=later, completed_at=None
    )
    with pytest.raises(InProgress):
        charge("o-1", 5)
    charge(None, 5)
    assert {(source.entry_point, source.route) for source, _, _ in meter.requests} == {
        ("function", f"{__name__}.charge")
    }
    assert meter.outcomes == ["executed", "replayed", "mismatch", "running", "unkeyed"]


@idempotent_function(key="order", guarantee="lease", required=True)
def strict(order: str | None) -> int:
    return 1


def test_a_function_that_requires_a_key(meter: RecordingMeter) -> None:
    with pytest.raises(KeyMissing):
        strict(None)
    assert meter.outcomes == ["missing"]


# --------------------------------------------------------------------------------- store and outbox


def test_the_verbs_of_a_store_are_measured(meter: RecordingMeter) -> None:
    """What a request waits for: under `atomic` also the lock, and the settle with its COMMIT."""
    post("orders/1", KEY * 2)
    assert [verb for _, verb in meter.operations] == ["claim", "lock", "commit"]
    assert {alias for alias, _ in meter.operations} == {"default"}
    meter.recorded.clear()
    charge("o-1", 5)
    assert meter.operations == [("default", "claim"), ("default", "settle")]


def test_a_replaced_store_is_measured(meter: RecordingMeter) -> None:
    with stores.replaced("default", MemoryStore()):
        charge("o-1", 5)
    assert meter.operations == [("default", "claim"), ("default", "settle")]
    assert not IdempotencyRecord.objects.exists()


def test_messages_of_the_outbox_count(meter: RecordingMeter) -> None:
    """Published and failed ones, with the seconds since they were sent."""

    def publish(message: Any) -> None:
        if message.topic == "bad":
            raise LookupError

    with transaction.atomic():
        send("good", {})
        send("bad", {})
    Relay(publish, using="default", once=True).batch()
    assert sorted(meter.labels("outbox.messages")) == [("failed",), ("published",)]
    assert [0 <= lag < 60 for lag in meter.values("outbox.lag")] == [True]


# ------------------------------------------------------------------------------------- the settings


def test_checks_make_no_second_meter(settings: Settings) -> None:
    """A second one might register its metrics twice.

    What could not be made is reported by what had failed.
    """
    made: list[Counting] = []

    class Counting(Meter):
        def __init__(self) -> None:
            made.append(self)

    globals()["Counting"] = Counting
    settings.IDEMPOTENCY = {"METRICS": f"{__name__}.Counting"}
    assert not [message for message in check_settings() if message.id == "django_idempotency.E090"]
    assert len(made) == 1


def test_a_meter_that_raises_changes_nothing(
    meter: RecordingMeter, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Meter):
        def request(self, *_: Any) -> None:
            raise LookupError("broken")

    with installed(Broken(), meter):
        assert post("orders/1", KEY * 2).status_code == 201
    assert meter.outcomes == ["executed"]
    assert "Broken raised: a figure is missing." in caplog.text


def test_the_setting_installs_meters(settings: Settings) -> None:
    """By name or dotted path, one or several; what cannot be made is logged, and `manage.py check`
    says what to type.
    """
    settings.IDEMPOTENCY = {
        "METRICS": [
            "django_idempotency.contrib.metrics.prometheus.PrometheusMeter",
            f"{RecordingMeter.__module__}.RecordingMeter",
        ]
    }
    assert [type(each).__name__ for each in meters.active] == ["PrometheusMeter", "RecordingMeter"]
    settings.IDEMPOTENCY = {"METRICS": "prometeus"}
    assert meters.active == ()
    settings.IDEMPOTENCY = {}
    assert meters.active == ()


OFF = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
import django
django.setup()
from django.core.handlers.wsgi import WSGIHandler
WSGIHandler()
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("prometheus_client", "opentelemetry")))
"""


@pytest.mark.slow
def test_off_imports_nothing() -> None:
    """Without the setting neither library is imported."""
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_outcomes_are_a_closed_list(meter: RecordingMeter, user: User) -> None:
    """Every label value that a problem can have is one of the published ones."""
    from django_idempotency.errors import Problem

    def kinds(cls: type[Problem]) -> Iterator[type[Problem]]:
        for sub in cls.__subclasses__():
            yield sub
            yield from kinds(sub)

    assert {kind.outcome for kind in kinds(Problem)} <= set(OUTCOMES)
