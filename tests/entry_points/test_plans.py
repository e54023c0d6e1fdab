"""A request reads no setting: its plan does, once.

What the request says counts as it is when a guard looks at it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_idempotency import Policy, idempotent
from django_idempotency.core.dialects import Dialect
from django_idempotency.http import plan
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore
from testproject.urls import urlpatterns as charges

from .conftest import KEY, Connect, Sender

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

HEADER = "HTTP_IDEMPOTENCY_KEY"
MIXIN, MIDDLEWARE, DECORATOR = "/api/charges/", "/middleware/charges/", "/plain/charges/"

ran: list[str] = []


@idempotent
def guarded(request: HttpRequest) -> HttpResponse:
    ran.append(request.method or "")
    return HttpResponse(status=201)


def after(change: Callable[[HttpRequest], None]) -> Callable[[HttpRequest], HttpResponse]:
    """Return a view that changes the request before the guarded view gets it, after the middleware
    has seen it.
    """

    def view(request: HttpRequest) -> HttpResponse:
        change(request)
        return guarded(request)

    return view


def give_key(request: HttpRequest) -> None:
    request.META[HEADER] = KEY


def take_key(request: HttpRequest) -> None:
    del request.META[HEADER]


def make_safe(request: HttpRequest) -> None:
    request.method = "GET"


urlpatterns = [
    *charges,
    path("give-key/", after(give_key)),
    path("take-key/", after(take_key)),
    path("make-safe/", after(make_safe)),
]


class Counted(dict[str, Any]):
    """Counts which names are read."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: Counter[str] = Counter()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked[name] += 1
        return super().get(name, default)


@pytest.fixture
def counted(settings: Any) -> Counted:
    counted = Counted()
    settings.IDEMPOTENCY = counted
    counted.asked.clear()  # METRICS is read when the settings change, and by no request
    return counted


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the headers that were parsed."""
    read, seen = Dialect.read_key, list[str]()

    def noting(self: Dialect, sent: Any, meta: Any) -> str | None:
        if sent is not None:
            seen.append(sent)
        return read(self, sent, meta)

    monkeypatch.setattr(Dialect, "read_key", noting)
    return seen


@pytest.mark.parametrize("url", [MIXIN, MIDDLEWARE, DECORATOR])
def test_a_request_reads_no_setting(
    user: User, connect: Connect, counted: Counted, parsed: list[str], url: str
) -> None:
    """The first request compiles the plan.

    Those after it read no setting, and the key is parsed once.
    """
    send = connect(url, user)
    send()
    assert len(parsed) == 1
    counted.asked.clear()
    assert send()["Idempotent-Replayed"] == "true"
    if url != MIXIN:  # where a key is required
        assert send(key=None).status_code == 201
    assert (counted.asked, len(parsed)) == (Counter(), 2)


def test_a_safe_request_reads_nothing(user: User, connect: Connect, counted: Counted) -> None:
    """A safe request reads nothing, whatever it carries."""
    send = connect(MIXIN, user)
    send.client.get(MIXIN, headers={**send.headers, "Idempotency-Key": KEY})
    assert not counted.asked


# ------------------------------------------------------------------------------------- a fresh plan


def overridden(settings: Any) -> None:
    settings.IDEMPOTENCY = {"HEADER": "X-Token"}


def removed(settings: Any) -> None:
    settings.IDEMPOTENCY = None


def another_secret(settings: Any) -> None:
    settings.SECRET_KEY = "another"


CHANGES: dict[str, tuple[Callable[[Any], None], str, bool]] = {
    "the settings are overridden": (overridden, "HTTP_X_TOKEN", True),
    "the setting is removed": (removed, HEADER, True),
    "another setting changes": (another_secret, HEADER, True),
    "nothing changes": (lambda settings: None, HEADER, False),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "policy", [Policy(), Policy(ttl=60), Policy(required=True)], ids=["any", "ttl", "required"]
)
def test_a_plan_is_compiled_again_when_the_settings_change(
    settings: Any, change: str, policy: Policy
) -> None:
    """It is the same plan until then, and that of the new settings from then on."""
    settings.IDEMPOTENCY = {"TTL": 3600}
    act, header, anew = CHANGES[change]
    before = plan.plan_of(policy)
    assert plan.plan_of(policy) is before
    act(settings)
    after = plan.plan_of(policy)
    assert (after.header, after is not before) == (header, anew)
    assert plan.plan_of(policy) is after


def test_a_plan_is_of_its_policy(settings: Any) -> None:
    """Policies of one action, one request or one test have a plan each, however equal they are."""
    first, second = Policy(ttl=60), Policy(ttl=60)
    assert first == second
    assert plan.plan_of(first) is not plan.plan_of(second)
    assert (plan.plan_of(first).terms.ttl, plan.plan_of(Policy(ttl=5)).terms.ttl) == (60, 5)


def test_a_plan_of_what_has_no_hash() -> None:
    """A policy may hold a list or a set, and has one plan all the same."""
    policy = Policy(methods=["POST"], keep={404}, headers=["ETag"])
    assert plan.plan_of(policy) is plan.plan_of(policy)
    assert policy == Policy(methods=["POST"], keep={404}, headers=["ETag"])


def test_a_store_that_is_replaced_counts_at_once() -> None:
    """Tests replace the store of an alias for a while."""
    policy, replacement = Policy(guarantee="lease"), MemoryStore()
    before = plan.plan_of(policy).store
    with stores.replaced("default", replacement):
        assert plan.plan_of(policy).store is replacement
    assert plan.plan_of(policy).store is before


# ----------------------------------------------------------------------- a request that was changed


@pytest.fixture
def send(user: User, connect: Connect) -> Sender:
    ran.clear()
    return connect("/give-key/", user)


def test_a_key_that_is_set_on_the_way_counts(send: Sender) -> None:
    """The middleware saw a request without a key, but the new key counts."""
    assert send(key=None)["Idempotency-Status"] == "created"
    assert send(key=None)["Idempotency-Status"] == "replayed"
    assert ran == ["POST"]


def test_a_key_that_is_removed_on_the_way_does_not_count(send: Sender, settings: Any) -> None:
    """With the earlier facts it would replay."""
    settings.IDEMPOTENCY = {"EXEMPT": ["path:/take-key/"]}  # the middleware leaves it alone
    assert send(url="/take-key/").status_code == 201
    assert send(url="/take-key/").status_code == 201
    assert ran == ["POST", "POST"]


def test_a_method_that_is_changed_on_the_way_counts(send: Sender, settings: Any) -> None:
    """The middleware saw a safe request, which is not guarded, but the new method counts."""
    settings.IDEMPOTENCY = {"EXEMPT": ["path:/make-safe/"]}
    send(url="/make-safe/")
    send(url="/make-safe/")
    assert ran == ["GET", "GET"]
