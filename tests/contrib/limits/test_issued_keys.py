"""Keys that the server issues: `POST /idempotency-tokens`, and what each entry point does with
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, JsonResponse
from django.test import Client, override_settings
from django.test.utils import override_script_prefix
from django.urls import include, path, register_converter
from django.urls.converters import StringConverter
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pytest_django import Settings

from django_idempotency import Policy, idempotent
from django_idempotency.conf import resolve
from django_idempotency.contrib.limits.issued_keys import IdempotencyTokenView
from django_idempotency.contrib.publishing.by_key import IdempotencyKeyView
from django_idempotency.contrib.rest import IdempotencyTokenView as RestTokenView
from django_idempotency.core.dialects import Dialect
from django_idempotency.core.key_formats import AHEAD, ISSUED_SAMPLE
from django_idempotency.core.policy import profile_contradiction
from django_idempotency.http.issued_keys import issue
from django_idempotency.models import IdempotencyRecord
from django_idempotency.scopes import hashed
from testproject.urls import urlpatterns as project_urls
from tests.support.dialects import DIALECTS
from tests.support.factories import TokenFactory, UserFactory

from ...entry_points.conftest import CHARGE, ENTRY_POINTS, KEY, Connect, Sender, effects
from ...entry_points.views import work

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

ISSUED = {"KEY_FORMAT": "issued"}
DAY = 86400


def partner(request: HttpRequest) -> str | None:
    return request.headers.get("X-Partner")


@idempotent(key_format="issued", scope=partner, ttl=600, methods=["POST"])
def partners(request: HttpRequest, pk: int) -> JsonResponse:
    return JsonResponse({"id": work()}, status=201)


@idempotent(key_format="uuid")
def by_clients(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"id": work()})


@idempotent(key_format="issued", key="body.token")
def selecting(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"id": work()})


@idempotent(key_format="issued", anonymous="shared")
def for_everyone(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"id": work()})


@idempotent(key_format="issued", profile="stripe")
def as_stripe(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"id": work()})


@idempotent(key_format="issued", profile=DIALECTS["repeatability"])
def repeatable(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"id": work()})


class Noting(StringConverter):
    """Notes what it converts, as one does that asks a database."""

    seen: ClassVar[list[str]] = []

    def to_python(self, value: str) -> str:
        self.seen.append(value)
        return value


register_converter(Noting, "noting")
urlpatterns = [
    path("", include("django_idempotency.contrib.limits.issued_keys")),
    path("api/idempotency-tokens", RestTokenView.as_view()),
    path(
        "guests/idempotency-tokens", IdempotencyTokenView.as_view(policy=Policy(anonymous="shared"))
    ),
    path("partners/idempotency-tokens", IdempotencyTokenView.as_view(policy=Policy(scope=partner))),
    path("noting/<noting:value>/", for_everyone),
    path("keys/<path:key>", IdempotencyKeyView.as_view()),
    path("partners/<int:pk>/", partners),
    path("by-clients/", by_clients),
    path("selecting/", selecting),
    path("for-everyone/", for_everyone),
    path("as-stripe/", as_stripe),
    path("repeatable/", repeatable),
    *project_urls,
]

#: Asks for a key: `ask(path="/plain/charges/")` → the response.
Ask = Callable[..., Any]


def asking(user: User, url: str) -> Ask:
    client, headers = Client(raise_request_exception=False), {}
    if url.startswith("/api/"):
        headers["Authorization"] = f"Token {TokenFactory(user=user).key}"
    else:
        client.force_login(user)

    def ask(data: bytes | None = None, content_type: str = "application/json", **named: str) -> Any:
        body = (json.dumps(named).encode() if named else b"") if data is None else data
        return client.generic("POST", url, body, content_type=content_type, headers=headers)

    return ask


@pytest.fixture(params=["/idempotency-tokens", "/api/idempotency-tokens"])
def ask(request: pytest.FixtureRequest, user: User) -> Ask:
    return asking(user, request.param)


@pytest.fixture
def ask_here(user: User) -> Ask:
    return asking(user, "/idempotency-tokens")


def outcome(response: Any) -> tuple[int, str]:
    return response.status_code, response["Idempotency-Status"]


# ------------------------------------------------------------------------------------- at the issue


def test_a_key(ask: Ask, settings: Settings) -> None:
    """It is new each time, is told with its end, is not cached, and leaves nothing behind."""
    settings.IDEMPOTENCY = {**ISSUED, "TTL": 3600}
    first, second = ask(), ask()
    assert (first.status_code, set(first.json())) == (201, {"key", "expires_at"})
    assert first.json()["key"] != second.json()["key"]
    left = datetime.fromisoformat(first.json()["expires_at"].replace("Z", "+00:00")) - datetime.now(
        timezone.utc
    )
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    assert "no-store" in first["Cache-Control"]
    assert not IdempotencyRecord.objects.exists()


def test_a_guest_gets_none(client: Client, settings: Settings) -> None:
    """Nobody could own it. Where guests share a scope, they get one."""
    settings.IDEMPOTENCY = ISSUED
    refused = client.post("/idempotency-tokens")
    assert (refused.status_code, refused.json()["code"]) == (400, "scope-required")
    key = client.post("/guests/idempotency-tokens").json()["key"]
    responses = [client.post("/for-everyone/", headers={"Idempotency-Key": key}) for _ in range(2)]
    assert [outcome(each) for each in responses] == [(200, "created"), (200, "replayed")]


@pytest.mark.parametrize("url", ["/idempotency-tokens", "/partners/idempotency-tokens"])
def test_a_stranger_learns_no_path(client: Client, settings: Settings, url: str) -> None:
    """All get the same refusal, whatever they ask for, and no converter of a path has run."""
    settings.IDEMPOTENCY = ISSUED
    bodies: tuple[dict[str, str], ...] = (
        {},
        {"path": "/noting/1/"},
        {"path": "/nothing/there/"},
        {"path": "/by-clients/"},
        {"what": "this"},
    )
    refused = [client.post(url, body, content_type="application/json") for body in bodies]
    assert {(each.status_code, each.content) for each in refused} == {(400, refused[0].content)}
    assert (refused[0].json()["code"], Noting.seen) == ("scope-required", [])
    client.force_login(UserFactory())
    assert client.post("/idempotency-tokens", {"path": "/noting/1/"}).status_code == 201
    assert Noting.seen.pop() == "1"


def test_the_include_routes_keys_only(client: Client) -> None:
    """It publishes no policies: who wants that routes them."""
    assert client.get("/.well-known/idempotency-policy").status_code == 404


def test_other_methods(ask: Ask, browser: Client) -> None:
    """A key is issued by POST only: what a link or an image asks for is not."""
    assert browser.get("/idempotency-tokens").status_code == 405


def test_a_page_elsewhere_cannot_ask(user: User) -> None:
    """Django's own view stands behind Django's protection against forged requests."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    assert client.post("/idempotency-tokens").status_code == 403


REFUSED = {
    "a list": b"[]",
    "text": b'"/orders/"',
    "null": b"null",
    "a number": b"1",
    "not JSON": b"{",
    "not UTF-8": b"\xff\xfe",
    "a name too many": b'{"path": "/by-clients/", "scope": "user:1"}',
    "a path that is none": b'{"path": 1}',
    "a list of paths": b'{"path": ["/plain/charges/"]}',
    "a relative path": b'{"path": "plain/charges/"}',
    "another host": b'{"path": "//elsewhere.example/plain/charges/"}',
    "an address": b'{"path": "https://elsewhere.example/plain/charges/"}',
    "an empty path": b'{"path": ""}',
    "nothing there": b'{"path": "/nothing/there/"}',
    "a NUL": b'{"path": "/plain/\\u0000charges/"}',
    "a lone surrogate": b'{"path": "/plain/\\ud800/"}',
    "a method without a path": b'{"method": "POST"}',
    "a safe method": b'{"method": "GET", "path": "/plain/charges/"}',
    "no method": b'{"method": "", "path": "/plain/charges/"}',
    "a method that is none": b'{"method": null, "path": "/plain/charges/"}',
    "keys of the client's": b'{"path": "/by-clients/"}',
    "a method that is not guarded": b'{"method": "PUT", "path": "/partners/1/"}',
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_gets_no_key(ask: Ask, settings: Settings, body: bytes) -> None:
    """400 with one code, and the reason."""
    settings.IDEMPOTENCY = ISSUED
    response = ask(body)
    assert (response.status_code, response.json()["code"]) == (400, "key-not-issued")
    assert response["Cache-Control"]


@pytest.mark.parametrize(
    "content_type", ["text/plain", "multipart/form-data", "application/xml", "nonsense"]
)
def test_another_type(ask_here: Ask, settings: Settings, content_type: str) -> None:
    """A body that cannot be read names nothing; one that is not there asks for nothing."""
    settings.IDEMPOTENCY = ISSUED
    assert ask_here(b"--y", content_type).json()["code"] == "key-not-issued"
    assert ask_here(b"", content_type).status_code == 201


def test_a_form_may_name_the_path(ask: Ask, settings: Settings) -> None:
    """As JSON does."""
    settings.IDEMPOTENCY = ISSUED
    form = "application/x-www-form-urlencoded"
    assert ask(b"path=/plain/charges/", form).status_code == 201
    assert ask(b"path=/plain/charges/&path=/by-clients/", form).json()["code"] == "key-not-issued"


def test_a_long_body(ask: Ask) -> None:
    """It is not read."""
    assert ask(b'{"path": "/%s"}' % (b"a" * 20_000)).json()["code"] == "request-too-large"


# --------------------------------------------------------------------------------------- at the use


@pytest.mark.parametrize("url", ENTRY_POINTS)
def test_one_operation(
    user: User, connect: Connect, ask_here: Ask, settings: Settings, url: str
) -> None:
    """One key is one effect, at any entry point; the record is kept for longer than the key is
    accepted.
    """
    settings.IDEMPOTENCY = ISSUED
    send, key = connect(url, user), ask_here(path=url).json()["key"]
    assert [outcome(send(key=key)) for _ in range(2)] == [(201, "created"), (201, "replayed")]
    assert outcome(send({**CHARGE, "amount": 1}, key=key)) == (422, "mismatch")
    assert effects() == 1
    record = IdempotencyRecord.objects.get()
    assert record.expires_at - record.created_at == timedelta(seconds=DAY + 2 * AHEAD)


def scope_of(user: User) -> str:
    return f"user:auth.user:{user.pk}"


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda user, other: KEY, (400, "key-malformed")),
        (lambda user, other: ISSUED_SAMPLE, (400, "key-malformed")),
        (lambda user, other: issue(scope_of(user), ago(DAY + 1)), (412, "key-expired")),
        (lambda user, other: issue(scope_of(user), ago(-AHEAD - 60)), (412, "key-ahead")),
        (lambda user, other: issue(scope_of(other), ago(0)), (400, "key-foreign")),
        (lambda user, other: issue("anonymous", ago(0)), (400, "key-foreign")),
        (
            lambda user, other: issue(scope_of(user), ago(0), method="POST", path="/by-clients/"),
            (400, "key-foreign"),
        ),
    ],
    ids=[
        "of a client",
        "not signed",
        "late",
        "ahead",
        "of another user",
        "of a guest",
        "for another address",
    ],
)
def test_what_is_refused(
    entry_point: Sender,
    user: User,
    other_user: User,
    *,
    settings: Settings,
    make: Any,
    expected: tuple[int, str],
) -> None:
    """Nothing runs, and nothing is stored."""
    settings.IDEMPOTENCY = ISSUED
    response = entry_point(key=make(user, other_user))
    assert (response.status_code, response.json()["code"]) == expected
    assert (effects(), IdempotencyRecord.objects.exists()) == (0, False)


def ago(seconds: float) -> datetime:
    return datetime.now(timezone.utc) - timedelta(seconds=seconds)


@given(
    key=st.text(
        st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='",'), min_size=1
    )
)
@hypothesis_settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_any_key(user: User, connect: Connect, key: str) -> None:
    """Whatever is sent as a key, there is the refusal, no error of ours, and no record."""
    with override_settings(IDEMPOTENCY=ISSUED):
        response = connect("/plain/charges/", user)(key=key)
    assert (response.status_code, response.json()["code"]) == (400, "key-malformed")
    assert not IdempotencyRecord.objects.exists()


def test_a_view_has_its_own_terms(client: Client) -> None:
    """A key for an address has the scope and the lifetime of the view there, and is refused at its
    neighbour's.
    """
    headers = {"X-Partner": "acme"}
    issued = client.post(
        "/partners/idempotency-tokens", {"path": "/partners/1/?page=1"}, headers=headers
    ).json()
    assert issued["expires_at"] < (datetime.now(timezone.utc) + timedelta(minutes=11)).isoformat()
    headers["Idempotency-Key"] = issued["key"]
    assert outcome(client.post("/partners/1/", headers=headers)) == (201, "created")
    assert client.post("/partners/2/", headers=headers).json()["code"] == "key-foreign"
    stranger = client.post("/partners/1/", headers={**headers, "X-Partner": "other"})
    assert stranger.json()["code"] == "key-foreign"
    assert IdempotencyRecord.objects.get().scope == hashed("scope:acme")


def test_below_a_prefix(browser: Client, settings: Settings) -> None:
    """A path is the one that the client sends its request to."""
    settings.IDEMPOTENCY, settings.FORCE_SCRIPT_NAME = ISSUED, "/shop"
    with override_script_prefix("/shop/"):  # as a server's handler sets it
        key = browser.post("/idempotency-tokens", {"path": "/shop/plain/charges/"}).json()["key"]
    response = browser.post(
        "/plain/charges/",
        json.dumps(CHARGE),
        content_type="application/json",
        headers={"Idempotency-Key": key},
    )
    assert outcome(response) == (201, "created")


def test_a_selected_key(browser: Client, user: User, other_user: User) -> None:
    """One in the payload is ours, too, and the client's own."""

    def send(token: Any) -> Any:
        return browser.post(
            "/selecting/", json.dumps({"token": token}), content_type="application/json"
        )

    own = issue(scope_of(user), ago(0))
    assert [outcome(send(own)) for _ in range(2)] == [(200, "created"), (200, "replayed")]
    assert send(issue(scope_of(other_user), ago(0))).json()["code"] == "key-foreign"
    assert {send(wrong).json()["code"] for wrong in (KEY, 1, [own], "\ud800")} == {"key-malformed"}


def test_in_another_profile(browser: Client, user: User, other_user: User) -> None:
    """The refusals have its shape, and a client that names itself before its key is the user's,
    too.
    """
    foreign = browser.post(
        "/as-stripe/", headers={"Idempotency-Key": issue(scope_of(other_user), ago(0))}
    )
    assert foreign.json()["error"]["code"] == "key_foreign"
    headers = {
        "Repeatability-Request-ID": issue(scope_of(user), ago(0)),
        "Repeatability-Client-ID": "till-1",
        "Repeatability-First-Sent": ago(0).strftime("%a, %d %b %Y %H:%M:%S GMT"),
    }
    assert browser.post("/repeatable/", headers=headers).status_code == 200


def test_a_client_may_ask_about_its_key(
    ask_here: Ask, browser: Client, connect: Connect, user: User
) -> None:
    """The key is spelled as it was issued."""
    with override_settings(IDEMPOTENCY=ISSUED):
        key = ask_here().json()["key"]
        assert browser.get(f"/keys/{key}").json()["code"] == "key-unknown"
        connect("/plain/charges/", user)(key=key)
        assert browser.get(f"/keys/{key}").json()["state"] == "completed"
        assert browser.get(f"/keys/{ISSUED_SAMPLE}").json()["code"] == "key-malformed"


def test_observed(
    user: User, other_user: User, connect: Connect, observed: Any, settings: Settings
) -> None:
    """Before the format is enforced, the clients that do not ask for keys can be counted."""
    settings.IDEMPOTENCY = {"MODE": "django_idempotency.contrib.observe.OBSERVE", **ISSUED}
    send = connect("/plain/charges/", user)
    for key in (KEY, issue(scope_of(other_user), ago(0)), issue(scope_of(user), ago(0))):
        assert send(key=key).status_code == 201
    assert observed.would == ["key-malformed", "key-foreign", "run"]


def test_a_request_without_a_key_asks_nothing(
    user: User, connect: Connect, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No signature is made for it."""

    def signs(*_: Any, **__: Any) -> None:
        raise AssertionError

    settings.IDEMPOTENCY = ISSUED
    monkeypatch.setattr("django_idempotency.http.issued_keys.Signer", signs)
    assert connect("/plain/charges/", user)(key=None).status_code == 201


@pytest.mark.parametrize("profile", DIALECTS.values(), ids=DIALECTS)
def test_a_profile_has_room_for_it(profile: Dialect) -> None:
    """Or the policy is refused, with what to type."""
    said = profile_contradiction(
        resolve(Policy(profile=profile, key_format="issued", required=True))
    )
    fits = profile.max_length >= len(ISSUED_SAMPLE)
    assert (said is None) is fits
    assert said is None or "so leave key_format out" in said
