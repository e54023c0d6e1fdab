"""A key has one life: from its first use for a lifetime, however often it comes again, by the clock
of its database.

The provider here forgets a key when its lifetime is over, and then does the work again.
"""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path
from pytest_django import Settings
from rest_framework.decorators import api_view, authentication_classes, permission_classes
from rest_framework.response import Response

from django_idempotency import idempotent, idempotent_function
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.models import Step
from django_idempotency.core.interventions import Intervention, released
from django_idempotency.core.records import OutcomeKind, kind_of
from django_idempotency.errors import HeldForPerson, KeyTooOld
from django_idempotency.runtime.registry import stores

from ...support.passing import host_off_by, let_pass
from .test_resuming import operation
from .test_undoing import states

pytestmark = [pytest.mark.either_server, pytest.mark.django_db(transaction=True)]

LIFETIME = timedelta(days=1)
ROOT = Path(__file__).resolve().parents[3] / "django_idempotency" / "contrib"


@dataclass
class Forgetful:
    """A provider that remembers each key for its lifetime, and the time that has passed."""

    now: timedelta = timedelta(0)
    first: dict[str, timedelta] = field(default_factory=dict)
    effects: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Kinds of calls that have their effect, and whose caller fails after that.
    breaks: set[str] = field(default_factory=set)

    def do(self, what: str, key: str) -> str:
        if key not in self.first or self.now - self.first[key] > LIFETIME:
            self.first[key] = self.now
            self.effects[what, key] += 1
        if what in self.breaks:
            raise TimeoutError(what)
        return what

    def go(self, passed: timedelta) -> None:
        self.now += passed
        let_pass(passed)

    def count(self, what: str) -> int:
        return sum(number for (kind, _), number in self.effects.items() if kind == what)


WORLD = Forgetful()


@pytest.fixture(autouse=True)
def _world(settings: Settings) -> None:
    WORLD.__init__()  # type: ignore[misc]
    settings.IDEMPOTENCY = {"GUARANTEE": "lease"}


def order(card: str) -> str:
    return card


def cancel(done: str) -> None:
    WORLD.do("cancel", f"cancel-{WORLD.effects.total()}")


def charge(card: str, *, idempotency_key: str) -> str:
    return WORLD.do("charge", idempotency_key)


def refund(done: Any, *, idempotency_key: str) -> None:
    WORLD.do("refund", idempotency_key)


def ask(asked: Any) -> Any:
    return asked.found("charge") if asked.key in WORLD.first else asked.run()


def derived(card: str) -> Any:
    return WORLD.do("charge", operation().derive("charge"))


def unwritten(card: str) -> Any:
    operation().step("order", order, card)
    return operation().step("charge", charge, card)


def written(card: str) -> Any:
    operation().step("order", order, card)
    return operation().step("charge", charge, card, undo=refund)


@pytest.mark.parametrize(
    ("body", "guarantee"),
    [(derived, "lease"), (derived, "atomic"), (unwritten, "lease"), (written, "lease")],
)
def test_sixty_days_of_retries(body: Callable[[str], Any], guarantee: str) -> None:
    """A client that comes back now and then keeps no key alive: there is one charge, and then a
    person decides.
    """
    chance = random.Random(1)

    @idempotent_function(key="card", key_prefix="days", guarantee=guarantee)
    def pay(card: str) -> Any:
        return body(card)

    WORLD.breaks.add("charge")
    ended: list[type[BaseException]] = []
    while WORLD.now < timedelta(days=60):
        with pytest.raises((TimeoutError, HeldForPerson)) as caught:
            pay("visa")
        ended.append(caught.type)
        WORLD.go(timedelta(hours=chance.uniform(0.1, 20)))
    assert WORLD.count("charge") == 1
    held = ended.index(HeldForPerson)
    assert held > 0
    assert set(ended[held:]) == {HeldForPerson}


def test_a_provider_of_its_own(settings: Settings) -> None:
    """A label that names a provider counts by its memory, and another by the setting."""
    settings.IDEMPOTENCY = {
        "GUARANTEE": "lease",
        "LIFETIME": 3600,
        "PROVIDERS": {"slow": {"LIFETIME": timedelta(days=3), "RETENTION": timedelta(days=30)}},
    }
    labels: list[str] = ["slow:charge", "slow"]

    @idempotent_function(key="card", key_prefix="own")
    def pay(card: str) -> Any:
        for label in labels:
            operation().derive(label)
        raise TimeoutError

    for raised in (TimeoutError, TimeoutError, HeldForPerson):
        with pytest.raises(raised):
            pay("visa")
        WORLD.go(timedelta(hours=2))
        if raised is TimeoutError and WORLD.now > timedelta(hours=3):
            labels.append("slower")


def test_a_person_lets_it_begin_anew() -> None:
    """Who releases a held operation has looked: its keys are used for the first time again."""
    ways = [derived, written]
    for body in ways:

        @idempotent_function(key="card", key_prefix="anew")
        def pay(card: str, body: Any = body) -> Any:
            return body(card)

        WORLD.breaks.add("charge")
        with pytest.raises(TimeoutError):
            pay(body.__name__)
        for _ in range(3):
            WORLD.go(timedelta(hours=10))
            if WORLD.now < timedelta(hours=20):
                with pytest.raises(TimeoutError):
                    pay(body.__name__)
        with pytest.raises(HeldForPerson):
            pay(body.__name__)
        WORLD.breaks.clear()
        held = held_record()
        assert stores["default"].change(held, released, audit=lambda _: None) is Intervention.DONE
        assert pay(body.__name__) == "charge"
        WORLD.__init__()  # type: ignore[misc]


def held_record() -> Any:
    from django_idempotency.models import IdempotencyRecord

    for pk in IdempotencyRecord.objects.order_by("-created_at").values_list("pk", flat=True):
        record = stores["default"].get(pk)
        if record is not None and kind_of(record.outcome) is OutcomeKind.HELD:
            return pk
    raise AssertionError("none is held")


def test_a_refusal_begins_a_new_use() -> None:
    """Nothing was done, and another body derives other keys: a request that is corrected late is
    carried out.
    """

    def view(request: Any) -> HttpResponse:
        key = request.idempotency.derive("charge")
        return HttpResponse(key, status=400 if b"wrong" in request.body else 201)

    with override_settings(
        ROOT_URLCONF=urls(idempotent(guarantee="atomic", anonymous="shared")(view))
    ):
        for _ in range(4):
            assert post("wrong").status_code == 400
            WORLD.go(timedelta(hours=10))
        assert post("right").status_code == 201


def urls(*views: Any) -> Any:
    return type(
        "urls", (), {"urlpatterns": [path(f"{at}/", view) for at, view in enumerate(views)]}
    )


def post(body: str, at: int = 0) -> Any:
    key = "a-key-that-is-long-enough-to-be-shared"
    return Client(raise_request_exception=False).post(
        f"/{at}/", body, content_type="text/plain", headers={"idempotency-key": key}
    )


@pytest.mark.parametrize("guarantee", ["atomic", "lease"])
@pytest.mark.parametrize("shape", ["plain", "nested", "rest"])
def test_what_the_client_gets(guarantee: str, shape: str, caplog: pytest.LogCaptureFixture) -> None:
    """A problem with a code of its own, and then that it is held; what the view wrote in `atomic`
    is rolled back.
    """
    from testproject.payments.models import Effect

    def work(request: Any) -> None:
        Effect.objects.create(label="written")
        WORLD.do("charge", request.idempotency.derive("charge"))

    def plain(request: HttpRequest) -> HttpResponse:
        work(request)
        return HttpResponse("paid", status=201)

    def nested(request: HttpRequest) -> HttpResponse:
        Effect.objects.create(label="written")
        with transaction.atomic():  # its rollback takes off the mark that all must be rolled back
            WORLD.do("charge", request.idempotency.derive("charge"))  # type: ignore[attr-defined]
        return HttpResponse("paid", status=201)

    def rest(request: Any) -> Response:
        work(request._request)
        return Response("paid", status=201)

    guard: Any = idempotent(guarantee=guarantee, anonymous="shared")
    view = (
        guard(plain if shape == "plain" else nested)
        if shape != "rest"
        else guard(api_view(["POST"])(authentication_classes([])(permission_classes([])(rest))))
    )
    WORLD.breaks.add("charge")
    with override_settings(ROOT_URLCONF=urls(view)):
        for _ in range(3):
            assert post("pay").status_code == 500
            WORLD.go(timedelta(hours=10))
        written = Effect.objects.count()
        refused, later = post("pay"), post("pay")
    assert (refused.status_code, refused.json()["code"]) == (409, KeyTooOld.code)
    assert (later.status_code, later.json()["code"]) == (409, "operation-held")
    assert WORLD.count("charge") == 1
    assert Effect.objects.count() == written + (guarantee == "lease")
    assert "release" in caplog.text  # what a person does


# -------------------------------------------------------------------------------------------- undos


def saga(card: str) -> Any:
    operation().step("order", order, card, undo=cancel)
    operation().step("charge", charge, card, undo=refund, ask=ask)
    raise ValueError


def test_sixty_days_of_undoing() -> None:
    """An undo that has its effect and then fails is repeated while its key is remembered, and then
    held; others go on.
    """
    pay = idempotent_function(key="card", key_prefix="undos", extensions=[UndoOn(ValueError)])(
        saga_of
    )
    WORLD.breaks.add("refund")
    with pytest.raises(ValueError):  # noqa: PT011 - of the saga
        pay("visa")
    assert (WORLD.count("cancel"), states()) == (1, ["UNDONE", "UNDOING", "BARRIER"])
    chance, tried, out = random.Random(3), 0, StringIO()
    while WORLD.now < timedelta(days=60):
        WORLD.go(timedelta(hours=chance.uniform(1, 20)))
        try:
            call_command("idempotency_resume", "operations", stdout=out)
        except CommandError:
            tried += 1
    assert (WORLD.count("refund"), WORLD.count("cancel"), WORLD.count("charge")) == (1, 1, 1)
    assert tried >= 1
    assert out.getvalue().count("a person decides: --undo") == 1
    assert Step.objects.get(name="charge").error.endswith("UndoTooOld")
    WORLD.breaks.clear()
    call_command(
        "idempotency_resume",
        "operations",
        "--undo",
        str(Step.objects.first().record),  # type: ignore[union-attr]
        stdout=StringIO(),
    )
    assert states() == ["UNDONE", "UNDONE", "BARRIER"]


def saga_of(card: str) -> Any:
    return saga(card)


# -------------------------------------------------------------------------------------------- hosts


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_host_whose_clock_is_wrong(hours: int) -> None:
    """Its purge deletes nothing that lives, its command takes nothing early, and its steps are as
    old as the others'.
    """

    @idempotent_function(key="card", key_prefix="hosts")
    def pay(card: str) -> Any:
        return written(card)

    WORLD.breaks.add("charge")
    with host_off_by(hours), pytest.raises(TimeoutError):
        pay("visa")
    with host_off_by(-hours):
        call_command("purge_idempotency", verbosity=0)
        assert states() == ["DONE", "STARTED"]
        out = StringIO()
        call_command("idempotency_resume", "operations", stdout=out)
        assert out.getvalue().startswith("Nothing to complete now.")
        WORLD.breaks.clear()
        assert pay("visa") == "charge"
    assert WORLD.count("charge") == 1
    WORLD.go(timedelta(hours=26))
    call_command("purge_idempotency", verbosity=0)
    assert states() == []


#: The one reading of a host's clock: an HTTP date in Retry-After is compared with it.
#: The second is what another host reads: the deadline of an attempt.
ALLOWED = {("client/exchange.py", "utcnow"), ("client/providers.py", "time")}
CLOCKS = {"utcnow", "now", "today", "time"}


def test_nobody_asks_the_host_for_the_time() -> None:
    """Of steps and calls, only stopwatches (`time.monotonic`) run on the host."""
    asked = set()
    for folder in ("steps", "client"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                called = node.func if isinstance(node, ast.Call) else None
                name = (
                    called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                )
                if name in CLOCKS:
                    asked.add((str(file.relative_to(ROOT)), name))
    assert asked == ALLOWED
