"""Keys of anonymous callers, of a named scope and of everyone, through the entry points."""

from __future__ import annotations

import pytest
from django.http import HttpRequest
from django.test import Client, override_settings

from django_idempotency.models import IdempotencyRecord

from .conftest import KEY, Sender, effects
from .urls import OPEN

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.entry_points.urls"),
]

LENIENT = {"middleware/open/", "adapted/open/"}


@pytest.fixture(params=OPEN)
def anonymous(request: pytest.FixtureRequest) -> Sender:
    return Sender(f"/{request.param}", Client(raise_request_exception=False), {})


def test_anonymous_is_not_a_principal(anonymous: Sender) -> None:
    """The middleware lets the request run unguarded; mixin and decorator say what is missing."""
    answers = [anonymous(), anonymous()]
    if anonymous.url.strip("/") + "/" in LENIENT:
        assert [answer.status_code for answer in answers] == [201, 201]
        assert effects() == 2
    else:
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {
            (400, "scope-required")
        }
        assert effects() == 0
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("key", ["", "evt,1", "k" * 300], ids=["empty", "comma", "long"])
def test_a_stranger_is_not_asked_for_a_better_key(anonymous: Sender, key: str) -> None:
    """What the middleware would not guard under any key is not refused for its key: it may be
    another service's header.
    """
    answer = anonymous(key=key)
    if anonymous.url.strip("/") + "/" in LENIENT:
        assert (answer.status_code, answer["Idempotency-Status"]) == (201, "unguarded")
        with override_settings(
            IDEMPOTENCY={"SCOPE": "tests.entry_points.test_principals.everybody"}
        ):
            assert anonymous(key=key).json()["code"] == "key-malformed"
        with override_settings(IDEMPOTENCY={"REQUIRED": True}):
            assert anonymous(key=key).json()["code"] == "key-malformed"
    else:
        assert answer.json()["code"] == "key-malformed"


def everybody(request: HttpRequest) -> str:
    return "everybody"


def tenant(request: HttpRequest) -> str | None:
    return request.headers.get("X-Tenant")


@override_settings(IDEMPOTENCY={"SCOPE": "tests.entry_points.test_principals.tenant"})
@pytest.mark.parametrize("name", ["acme", "t" * 4000, "caf\xe9", "a\x85b", "\x7f"], ids=ascii)
def test_a_named_scope_owns_its_keys(anonymous: Sender, name: str) -> None:
    """No name that a client gives itself leads to a 500 or to another client's response."""
    first, retry = (anonymous(headers={"X-Tenant": name}) for _ in range(2))
    other = anonymous(headers={"X-Tenant": f"{name}2"})
    assert (first.status_code, retry.content) == (201, first.content)
    assert (other.status_code, "Idempotent-Replayed" in other) == (201, False)
    assert effects() == 2


@override_settings(IDEMPOTENCY={"ANONYMOUS": "shared"})
def test_a_shared_key_is_shared_by_all_clients(anonymous: Sender) -> None:
    """Only long shared keys are accepted."""
    short = anonymous(key="k" * 19)
    assert (short.status_code, short.json()["code"]) == (400, "key-too-short")
    assert effects() == 0
    first = anonymous()
    stranger = Sender(anonymous.url, Client(), {})
    assert stranger().content == first.content
    assert effects() == 1


@pytest.mark.urls("testproject.urls")
def test_a_safe_method_ignores_the_header(entry_point: Sender) -> None:
    """A safe method gets the same response with any key, malformed or not, and nothing is
    stored.
    """
    answers = []
    for key in (None, KEY, "a,b", ""):
        headers = {**entry_point.headers, **({} if key is None else {"Idempotency-Key": key})}
        answer = entry_point.client.get(entry_point.url, headers=headers)
        answers.append((answer.status_code, answer.content))
    assert len(set(answers)) == 1
    assert answers[0][0] in (200, 405)
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.urls("testproject.urls")
@override_settings(IDEMPOTENCY={"HEADER": "X-Request-Token"})
def test_the_name_of_the_header_is_the_projects(entry_point: Sender) -> None:
    """The usual header name then has no effect."""
    first, retry = (entry_point(key=None, headers={"X-Request-Token": KEY}) for _ in range(2))
    assert (first.status_code, retry.content) == (201, first.content)
    ignored = entry_point()
    # A key is required there.
    assert ignored.status_code == (400 if entry_point.url == "/api/charges/" else 201)
    assert "Idempotent-Replayed" not in ignored
