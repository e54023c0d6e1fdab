"""Every sync entry point is one bracket: the same story of a key, without a transaction around it
and inside one.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.db.models import F
from django.test import Client

from django_idempotency.http.call import Call
from django_idempotency.models import IdempotencyRecord

pytest.importorskip("dmr")
pytest.importorskip("graphene_django")
pytest.importorskip("ninja")

from tests.stores.helpers import not_sqlite

from . import bracket_views as views
from .bracket_views import PLAIN, RAN, REST, PowerCut
from .conftest import KEY, effects

pytestmark = [
    pytest.mark.either_server,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.entry_points.bracket_views"),
]

#: What is open around a view: nothing, a transaction of ATOMIC_REQUESTS, or one of the project's
#: own, which is around the guard where that is not the middleware's.
AROUND = ("nothing", "a request", "a block")
OWN = [name for name in views.VIEWS if name not in ("middleware", "lent mixin")]
EACH = [
    (name, around)
    for name in views.VIEWS
    for around in AROUND
    if name in OWN or around != "a block"
]
each = pytest.mark.parametrize(("name", "around"), EACH)
#: Those whose responses have a status.
with_status = pytest.mark.parametrize(
    ("name", "around"), [(name, around) for name, around in EACH if name != "graphene"]
)


class Sender:
    """Sends requests to one view, as one user."""

    def __init__(self, name: str, around: str, user: User) -> None:
        self.name = name
        self.url = f"/surrounded/{name}/" if around == "a block" else f"/{name}/"
        self.client = Client(raise_request_exception=False)
        self.client.force_login(user)

    def __call__(self, how: str = "201", *, key: str | None = KEY) -> Any:
        body: dict[str, Any] = {"how": how}
        if self.name == "graphene":
            query = "mutation Pay($how: String) { pay(how: $how) { status } }"
            body = {"query": query, "variables": body}
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.client.post(self.url, body, content_type="application/json", headers=headers)


@pytest.fixture
def staff(user: User) -> User:
    user.is_staff = True
    user.save()
    return user


@pytest.fixture
def send(name: str, around: str, staff: User, monkeypatch: pytest.MonkeyPatch) -> Sender:
    RAN.clear()
    views.ENTERED.clear()
    views.LEAVE.clear()
    asked = around == "a request"
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", asked)
    return Sender(name, around, staff)


def attempts() -> list[int]:
    """Return the attempts that ran. All of them have derived one key."""
    assert len({derived for _, derived in RAN}) == 1
    return [attempt for attempt, _ in RAN]


@each
def test_a_story(send: Sender, staff: User) -> None:
    """A first request, its retry, another one under its key, who may not do it any more, and one
    without a key.
    """
    first = send()
    retry = send()
    assert (retry.status_code, retry.content) == (first.status_code, first.content)
    assert (first["Idempotency-Status"], retry["Idempotency-Status"]) == ("created", "replayed")
    assert send("202").status_code == 422
    staff.is_staff = False
    staff.save()
    refused = send()
    assert refused.status_code in (302, 401, 403)
    assert "Idempotent-Replayed" not in refused
    staff.is_staff = True
    staff.save()
    assert (effects(), attempts()) == (1, [1])
    assert "Idempotency-Key" not in send(key=None)
    assert effects() == 2


def ended(name: str, how: str, around: str) -> tuple[list[int], int]:
    """Return the attempts and the committed writes of two requests."""
    inside = around != "nothing"
    leaves = how == "raise" or (how == "404" and name in (*PLAIN, "modern-rest"))
    if how == "402":
        return [1], 1
    if how == "400":  # free, also for another request
        return [1, 2], 2
    if how == "404" and not leaves:  # the framework has made a response of it
        marked = name in REST and around == "a request"
        return [1], 0 if marked else 1
    if how == "404" and not inside:  # Django has
        return [1], 1
    # Of what fails in a request, and of what an exception takes along, there is no trace.
    gone = around == "a request" or (inside and leaves)
    return ([1, 1] if gone else [1, 2]), 0


@with_status
def test_endings_and_their_retries(send: Sender, name: str, around: str) -> None:
    """How often the work runs, as which attempts, and what of it stays. Each attempt has the same
    derived key.
    """
    for how in ("402", "400", "404", "503", "raise"):
        RAN.clear()
        before = effects()
        first = send(how, key=how)
        retry = send(how, key=how)
        status = 500 if how == "raise" else int(how)
        assert (first.status_code, retry.status_code) == (status, status)
        assert (attempts(), effects() - before) == ended(name, how, around), how
        assert ("Idempotent-Replayed" in retry) == (len(RAN) == 1)


@each
def test_a_process_that_dies(send: Sender, around: str) -> None:
    """The next request runs: as attempt 2, once the lease of the claim is over; or as attempt 1 at
    once, if that was rolled back.
    """
    with pytest.raises(PowerCut):
        send("dies")
    if around == "nothing":
        assert send("dies").status_code == 409
        IdempotencyRecord.objects.update(lease_until=F("created_at"))
    assert send("dies")["Idempotency-Status"] == "created"
    assert (attempts(), effects()) == ([1, 2] if around == "nothing" else [1, 1], 1)


@pytest.mark.skipif(connection.vendor == "mysql", reason="InnoDB defers no constraint")
@each
def test_a_commit_that_fails(send: Sender, around: str) -> None:
    """The response is not sent, and nothing of it is remembered."""
    assert send("deferred").status_code == 500
    assert effects() == 0
    assert send("deferred")["Idempotency-Status"] == "created"
    assert (attempts(), effects()) == ([1, 2] if around == "nothing" else [1, 1], 1)


def in_threads(senders: list[Sender], how: str) -> list[Future[Any]]:
    def run(sender: Sender) -> Any:
        try:
            return sender(how)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(senders)) as pool:
        return [pool.submit(run, sender) for sender in senders]


@not_sqlite
@each
def test_a_duplicate_while_it_runs(send: Sender, name: str, around: str, staff: User) -> None:
    """It gets 409: at once, or within about a second where it waits for the transaction."""
    duplicate = Sender(name, around, staff)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, "slow")
        try:
            assert views.ENTERED.wait(20)
            began = time.monotonic()
            refused = duplicate("slow")
            waited = time.monotonic() - began
        finally:
            views.LEAVE.set()
        assert first.result()["Idempotency-Status"] == "created"
        pool.submit(connections.close_all).result()
    assert (refused.status_code, refused["Idempotency-Status"]) == (409, "in-progress")
    assert waited < 3
    assert duplicate("slow")["Idempotency-Status"] == "replayed"
    assert effects() == 1


@not_sqlite
@each
def test_several_at_once(send: Sender, name: str, around: str, staff: User) -> None:
    """One of them runs. The others get its response, or 409."""
    senders = [Sender(name, around, staff) for _ in range(4)]
    said = [future.result()["Idempotency-Status"] for future in in_threads(senders, "201")]
    assert said.count("created") == 1
    assert {*said} <= {"created", "in-progress", "replayed"}
    assert send()["Idempotency-Status"] == "replayed"
    assert (effects(), attempts()) == (1, [1])


# ----------------------------------------------------------------------------- the calls it makes

STEPS = ("open", "ended", "settle", "fail")
#: How the view ends → the calls of the bracket.
CALLS = {
    "201": ["open", "ended", "settle"],
    "402": ["open", "ended", "settle"],
    "503": ["open", "ended", "settle"],
    "raise": ["open", "fail"],
    "404": ["open", "fail"],
    "broken": ["open", "ended", "fail"],  # when its response is rendered
}


def noting(calls: list[str], step: str) -> Any:
    """Return a method that notes its call, unless that is made by another step."""
    made = getattr(Call, step)

    def make(call: Call, *given: Any) -> Any:
        calls.append(step)
        place = len(calls)
        try:
            return made(call, *given)
        finally:
            del calls[place:]

    return make


@pytest.mark.any_database
@pytest.mark.parametrize("around", AROUND[:1])
@pytest.mark.parametrize("name", [*PLAIN, *REST, "ninja", "modern-rest"])
def test_the_calls_of_the_bracket(send: Sender, name: str) -> None:
    """guarded() and the hooks of a framework make the same calls in the same order. A framework
    that handles an exception has a response.
    """
    calls: list[str] = []
    with patch.multiple(Call, **{step: noting(calls, step) for step in STEPS}):
        for how in CALLS:
            made = "201" if how == "404" and name in (*REST, "ninja") else how
            for _ in range(2):
                calls.clear()
                replayed = "Idempotent-Replayed" in send(how, key=how)
                assert calls == (["open"] if replayed else CALLS[made]), how
