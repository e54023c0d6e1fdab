"""A replay goes only to callers who may send the request now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.test import override_settings
from rest_framework import exceptions
from rest_framework.authtoken.models import Token
from rest_framework.throttling import SimpleRateThrottle

from django_idempotency.core.records import Outcome
from testproject.payments.models import Charge
from testproject.payments.views import BareChargeView, ChargeViewSet

from ..support.factories import grant
from .conftest import Connect, Sender, effects

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]

#: Entry points of the testproject that identify by token, and so repeat DRF's checks.
TOKEN_ENTRY_POINTS = ("/api/charges/", "/middleware/api/charges/", "/api/payouts/")


@pytest.fixture(params=TOKEN_ENTRY_POINTS)
def token_entry_point(request: pytest.FixtureRequest, user: User, connect: Connect) -> Sender:
    return connect(request.param, user)


def deactivate(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def delete_token(user: User) -> None:
    Token.objects.filter(user=user).delete()


@pytest.mark.parametrize("revoke", [deactivate, delete_token])
def test_a_revoked_client_gets_no_replay(
    token_entry_point: Sender, user: User, revoke: Callable[[User], None]
) -> None:
    """The client gets 401, as for any request, and no part of the stored response."""
    first = token_entry_point()
    revoke(user)
    answer = token_entry_point()
    assert (answer.status_code, "Idempotent-Replayed" in answer) == (401, False)
    assert str(first.json()["id"]) not in answer.content.decode()
    assert effects() == 1


@pytest.mark.parametrize("url", ["/plain/charges/", "/middleware/charges/"])
@pytest.mark.parametrize(
    "leave", [deactivate, lambda user: user.delete()], ids=["inactive", "deleted"]
)
def test_a_session_that_is_over_gets_no_replay(
    url: str, user: User, connect: Connect, leave: Callable[[User], Any]
) -> None:
    """The client gets the login page, as for any request."""
    send = connect(url, user)
    assert send().status_code == 201
    leave(user)
    answer = send()
    assert (answer.status_code, "Idempotent-Replayed" in answer) == (302, False)


class TwicePerHour(SimpleRateThrottle):
    rate = "2/hour"

    def get_cache_key(self, request: Any, view: Any) -> str:
        return f"throttle-{request.user.pk}"


@pytest.fixture
def _throttled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from django.core.cache import cache

    cache.clear()
    for view in (ChargeViewSet, BareChargeView):
        monkeypatch.setattr(view, "throttle_classes", [TwicePerHour])
    yield
    cache.clear()


@pytest.mark.usefixtures("_throttled")
@pytest.mark.parametrize("url", ["/api/charges/", "/middleware/api/charges/"])
def test_a_throttled_client_gets_no_replay(url: str, user: User, connect: Connect) -> None:
    """A replay counts like any request, and 429 stays 429."""
    send = connect(url, user)
    assert [send().status_code, send().status_code, send().status_code] == [201, 201, 429]
    assert "Idempotent-Replayed" not in send()
    assert effects() == 1


@pytest.mark.urls("tests.entry_points.urls")
@pytest.mark.parametrize(
    ("route", "status"),
    [
        ("mixin/may-add-charges/", 403),
        ("adapted/may-add-charges/", 403),
        ("rest-class/may-add-charges/", 403),
        ("above/may-add-charges/", 403),
        ("below/may-add-charges/", 403),
        ("decorator/permission-required/", 302),
        ("decorator/permission-required-raising/", 403),
        ("class/ForPermitted/", 403),
        ("method/ForPermittedRaising/", 403),
    ],
)
def test_a_forbidden_client_gets_no_replay(
    route: str, status: int, user: User, connect: Connect
) -> None:
    """A client that has lost the permission has lost the replay with it."""
    grant(user, Charge, "add_charge")
    send = connect(f"/{route}", user)
    assert [send().status_code, send().status_code] == [201, 201]
    user.user_permissions.clear()
    answer = send()
    assert (answer.status_code, "Idempotent-Replayed" in answer) == (status, False)
    grant(user, Charge, "add_charge")
    assert send()["Idempotent-Replayed"] == "true"
    assert effects() == 1


def test_another_user_never_gets_it(
    entry_point: Sender, other_user: User, connect: Connect
) -> None:
    """On the same client, with the same key: the key is each user's own, and blocks no other."""
    first = entry_point()
    other = connect(entry_point.url, other_user)
    other.client = entry_point.client
    if not other.headers:
        other.client.force_login(other_user)
    theirs = other()
    assert (theirs.status_code, "Idempotent-Replayed" in theirs) == (201, False)
    assert theirs.json()["id"] != first.json()["id"]
    assert other({"amount": 1, "currency": "eur"}).status_code == 422  # of their own key
    assert effects() == 2


def test_a_project_may_refuse_a_replay(entry_point: Sender) -> None:
    """`authorize_replay` sees the request with its user, and the outcome that would be returned."""
    asked: list[tuple[Any, int]] = []

    def authorize(request: HttpRequest, outcome: Outcome) -> bool:
        asked.append((request.user.pk, outcome.status))
        return len(asked) > 1

    with override_settings(IDEMPOTENCY={"AUTHORIZE_REPLAY": authorize}):
        first = entry_point()
        assert asked == []
        refused = entry_point()
        assert (refused.status_code, refused.json()["code"]) == (403, "replay-refused")
        assert refused["Content-Type"] == "application/problem+json"
        assert entry_point().content == first.content
    assert {status for _, status in asked} == {201}
    assert {who for who, _ in asked} == {User.objects.get().pk}
    assert effects() == 1


def denied(request: HttpRequest, outcome: Outcome) -> bool:
    raise PermissionDenied


@override_settings(IDEMPOTENCY={"AUTHORIZE_REPLAY": "tests.entry_points.test_replay_rights.denied"})
def test_a_project_may_refuse_by_an_exception(entry_point: Sender) -> None:
    """The response is that of the view's own PermissionDenied."""
    assert [entry_point().status_code, entry_point().status_code] == [201, 403]


def gone(request: HttpRequest, outcome: Outcome) -> bool:
    raise exceptions.NotFound


@override_settings(IDEMPOTENCY={"AUTHORIZE_REPLAY": gone})
def test_drfs_exceptions_work_in_drfs_entry_points(token_entry_point: Sender) -> None:
    """404 instead of 403, where a project does not reveal what exists."""
    assert [token_entry_point().status_code, token_entry_point().status_code] == [201, 404]
