"""What a request says about its key is read once, and read again after the request has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import path

from django_idempotency import Policy, idempotent
from django_idempotency.core.profiles import Profile
from django_idempotency.http import facts, keys
from testproject.urls import urlpatterns as charges

from .conftest import KEY, Connect, Sender

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

HEADER = "HTTP_IDEMPOTENCY_KEY"
#: The settings that the facts are read from.
OF_FACTS = Counter(["HEADER", "METHODS", "REQUIRED", "KEY", "PROFILE"])
MIXIN, MIDDLEWARE, DECORATOR = "/api/charges/", "/middleware/charges/", "/plain/charges/"

ran: list[str] = []


@idempotent
def guarded(request: HttpRequest) -> HttpResponse:
    ran.append(request.method or "")
    return HttpResponse(status=201)


def after(change: Callable[[HttpRequest], None]) -> Callable[[HttpRequest], HttpResponse]:
    """Return a view that changes the request before the guarded view gets it, after the middleware has seen it."""

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
    parse, seen = keys.parse_key, list[str]()

    def noting(sent: str, profile: Profile) -> str:
        seen.append(sent)
        return parse(sent, profile)

    monkeypatch.setattr(facts, "parse_key", noting)
    return seen


@pytest.mark.parametrize("url", [MIXIN, MIDDLEWARE, DECORATOR])
def test_the_key_and_the_settings_are_read_once(
    user: User, connect: Connect, counted: Counted, parsed: list[str], url: str
) -> None:
    """The middleware or the view's own guard reads them, whichever comes first. A replay reads no more than that."""
    send = connect(url, user)
    send()
    assert len(parsed) == 1
    assert max(counted.asked.values()) <= 2  # once for the facts, once for the policy
    counted.asked.clear()
    assert send()["Idempotent-Replayed"] == "true"
    of_key = ["KEY_FORMAT", "REQUEST_ID_HEADER", "COUNT_REPLAYS", *(["EXEMPT"] if url == MIDDLEWARE else [])]
    assert counted.asked - Counter(["STORES"]) == OF_FACTS + Counter(of_key)
    assert len(parsed) == 2


@pytest.mark.parametrize("url", [MIDDLEWARE, DECORATOR])
def test_a_request_without_a_key_reads_only_that(user: User, connect: Connect, counted: Counted, url: str) -> None:
    """A request without a key resolves nothing else."""
    assert connect(url, user)(key=None).status_code == 201
    assert counted.asked == OF_FACTS


def test_a_safe_request_reads_nothing(user: User, connect: Connect, counted: Counted) -> None:
    """A safe request reads nothing, whatever it carries."""
    send = connect(MIXIN, user)
    send.client.get(MIXIN, headers={**send.headers, "Idempotency-Key": KEY})
    assert not counted.asked


# ---------------------------------------------------------------------------------------- a request that was changed


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


def test_the_same_facts_until_the_request_changes() -> None:
    """The facts are read again when the settings change: a test may send one request twice."""
    request = RequestFactory().post("/", headers={"Idempotency-Key": "a"})
    first = facts.facts_of(request)
    assert facts.facts_of(request) is first
    assert (first.read_key(), first.is_guarded_method(Policy())) == ("a", True)
    with override_settings(IDEMPOTENCY={"METHODS": ["PUT"], "HEADER": "X-Token"}):
        assert not facts.facts_of(request).carries_key()
        assert not facts.facts_of(request).is_guarded_method(Policy())
    assert facts.facts_of(request) == first
    request.META[HEADER] = "b"
    assert facts.facts_of(request).read_key() == "b"
    request.method = "DELETE"
    assert facts.facts_of(request).method == "DELETE"
