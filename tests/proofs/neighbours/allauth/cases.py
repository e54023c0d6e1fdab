"""allauth headless behind the middleware: responses that prove who a user is are never stored and
never replayed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core import checks
from django.test import Client
from pytest_django import Settings

from django_idempotency.checks.guards import rows
from django_idempotency.models import IdempotencyRecord

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
PASSWORD = "correct horse battery"
REFUSALS = {401, 409, 410}
APP, BROWSER = "/_allauth/app/v1", "/_allauth/browser/v1"


class Caller:
    """Sends JSON under a key, with a session token if it has one."""

    def __init__(self) -> None:
        self.client = Client()
        self.token: str | None = None

    def __call__(self, method: str, url: str, **data: Any) -> Any:
        headers = {"Idempotency-Key": KEY}
        if self.token is not None:
            headers["X-Session-Token"] = self.token
        return self.client.generic(
            method, url, json.dumps(data), content_type="application/json", headers=headers
        )

    def login(self, base: str, password: str = PASSWORD) -> Any:
        return self("POST", f"{base}/auth/login", username="ann", password=password)


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann", "ann@shop.example", PASSWORD)


@pytest.fixture(
    params=[{}, {"REQUIRED": True}, {"SCOPE": lambda request: "shared"}],
    ids=["plain", "required", "scope"],
)
def configured(request: pytest.FixtureRequest, settings: Settings) -> None:
    """The middleware with its defaults, with keys required, and with a scope that names every
    caller.
    """
    settings.IDEMPOTENCY = request.param


def stored() -> int:
    return IdempotencyRecord.objects.count()


def assert_unguarded(*responses: Any) -> None:
    assert [response["Idempotency-Status"] for response in responses] == ["unguarded"] * len(
        responses
    )
    assert stored() == 0


def test_two_logins_of_an_app_are_two_sessions(ann: User, configured: None) -> None:
    """A session token is a secret of one login: another login with the same key gets another."""
    first, second = Caller().login(APP), Caller().login(APP)
    tokens = {response.json()["meta"]["session_token"] for response in (first, second)}
    assert (first.status_code, second.status_code, len(tokens)) == (200, 200, 2)
    assert_unguarded(first, second)


def test_two_logins_of_a_browser_are_two_sessions(ann: User, configured: None) -> None:
    """Each login gets a cookie of its own."""
    callers = [Caller(), Caller()]
    assert_unguarded(*(caller.login(BROWSER) for caller in callers))
    assert len({caller.client.cookies["sessionid"].value for caller in callers}) == 2


def test_a_signup_is_not_stored(configured: None) -> None:
    """The second signup is refused because the name is taken, as without a key."""
    data = {"username": "bob", "email": "bob@shop.example", "password": PASSWORD}
    first, second = (Caller()("POST", f"{APP}/auth/signup", **data) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 400)
    assert first.json()["meta"]["session_token"].encode() not in second.content
    assert_unguarded(first, second)


@pytest.mark.parametrize("base", [APP, BROWSER])
def test_a_caller_whose_right_was_withdrawn_never_sees_a_replay(
    ann: User, configured: None, base: str
) -> None:
    """A caller deactivated or logged out gets allauth's own refusal, and no part of the first
    response.
    """
    caller = Caller()
    caller.token = caller.login(base).json().get("meta", {}).get("session_token")
    assert caller("POST", f"{base}/account/email", email="secret@shop.example").status_code == 200
    User.objects.filter(pk=ann.pk).update(is_active=False)
    refused = caller("POST", f"{base}/account/email", email="secret@shop.example")
    assert (refused.status_code in REFUSALS, b"secret" in refused.content) == (True, False)
    User.objects.filter(pk=ann.pk).update(is_active=True)
    out = caller("DELETE", f"{base}/auth/session")
    assert out.status_code == 401
    refused = caller("POST", f"{base}/account/email", email="secret@shop.example")
    assert (refused.status_code in REFUSALS, b"secret" in refused.content) == (True, False)
    assert "Idempotent-Replayed" not in refused
    assert stored() == 0


@pytest.mark.parametrize("base", [APP, BROWSER])
def test_a_change_behaves_as_without_a_key(ann: User, base: str) -> None:
    """An address is added once, since allauth refuses the second; changing a password twice changes
    it twice.
    """
    caller = Caller()
    caller.token = caller.login(base).json().get("meta", {}).get("session_token")
    first, second = (
        caller("POST", f"{base}/account/email", email="new@shop.example") for _ in range(2)
    )
    assert (first.status_code, second.status_code) == (200, 400)
    assert EmailAddress.objects.filter(email="new@shop.example").count() == 1
    changed = caller(
        "POST",
        f"{base}/account/password/change",
        current_password=PASSWORD,
        new_password=PASSWORD + "2",
    )
    caller.token = changed.json().get("meta", {}).get("session_token", caller.token)
    wrong = caller(
        "POST",
        f"{base}/account/password/change",
        current_password=PASSWORD,
        new_password=PASSWORD + "2",
    )
    assert (changed.status_code, wrong.status_code) == (200, 400)
    assert stored() == 0


def test_reauthentication(ann: User) -> None:
    """A reauthentication opens this session; a stored response would only claim to."""
    caller = Caller()
    caller.login(BROWSER)
    wrong, right = (
        caller("POST", f"{BROWSER}/auth/reauthenticate", password=word)
        for word in ("wrong", PASSWORD)
    )
    assert (wrong.status_code, right.status_code) == (400, 200)
    assert_unguarded(wrong, right)


def test_views_of_the_project(ann: User) -> None:
    """A view derived from allauth's is left alone, unless guarded on purpose behind its input; any
    other is guarded.
    """
    caller = Caller()
    caller.login(BROWSER)
    assert_unguarded(caller("POST", "/own/", email="own@shop.example"))
    first, retry = (caller("POST", "/guarded/", email="other@shop.example") for _ in range(2))
    # The address is taken.
    assert (first["Idempotency-Status"], retry["Idempotency-Status"]) == (
        "created",
        "refused",
    )
    IdempotencyRecord.objects.all().delete()
    first, retry = (caller("POST", "/plain/") for _ in range(2))
    assert (retry.content, retry["Idempotency-Status"]) == (first.content, "replayed")


def test_nothing_is_found() -> None:
    """`manage.py check` finds nothing, and `idempotency_routes` says why."""
    said = {row.path: (row.guard.value, row.why) for row in rows()}
    assert said["/_allauth/app/v1/auth/login"] == ("exempt", "it is a view of allauth")
    assert [said[path][0] for path in ("/own/", "/guarded/", "/plain/")] == [
        "exempt",
        "decorator",
        "middleware",
    ]
    ours = [
        found for found in checks.run_checks() if str(found.id).startswith("django_idempotency")
    ]
    assert [found for found in ours if not found.is_silenced()] == []
