"""Every kind of response, through every entry point: what the first caller gets, and what a retry
gets.
"""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client, override_settings

from django_idempotency import BufferedStreams, Policy, StatusOnly
from django_idempotency.conf import resolve
from django_idempotency.core.records import Status
from django_idempotency.http import responses
from django_idempotency.http.responses import capture
from django_idempotency.models import IdempotencyRecord

from .conftest import KEY, effects
from .urls import ANSWERING
from .views import LARGE, SMALL

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.entry_points.urls"),
]

KEPT = {
    "binary": 200,
    "empty": 200,
    "gzipped": 200,
    "no-content": 204,
    "moved": 301,
    "found": 302,
    "see-other": 303,
    "not-found": 404,
    "unprocessable": 422,
    "template": 201,
    "small-file": 200,
    "headers": 201,
}
#: Kind → status and length of the response that is not stored.
WITHOUT_BODY = {
    "stream": (201, 1006),
    "large-stream": (201, 100_006),
    "large": (201, LARGE),
    "large-file": (200, LARGE),
    "no-store": (200, 6),
}
MOMENTARY = {"Server-Timing", "Content-Length"}


class Caller:
    """Asks one entry point for responses, with a session."""

    def __init__(self, entry_point: str, user: User) -> None:
        self.entry_point = entry_point
        self.client = Client(raise_request_exception=False)
        self.client.force_login(user)

    def __call__(self, kind: str, *, key: str | None = KEY, **headers: str) -> Any:
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.client.post(f"/{self.entry_point}/answers/{kind}/", headers=headers)


@pytest.fixture(params=ANSWERING)
def ask(request: pytest.FixtureRequest, user: User) -> Caller:
    return Caller(request.param, user)


def content(response: Any) -> bytes:
    value: bytes = response.getvalue()
    return value


def headers(response: HttpResponse) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name not in MOMENTARY}


@pytest.mark.parametrize(("kind", "status"), KEPT.items())
def test_a_kept_answer_comes_back_byte_for_byte(ask: Caller, kind: str, status: int) -> None:
    """The replay has the same status, bytes and safe headers; the work ran once."""
    first = ask(kind)
    sent = content(first)
    retry = ask(kind)
    assert (first.status_code, retry.status_code) == (status, status)
    assert content(retry) == sent
    assert headers(retry) == {
        **headers(first),
        "Idempotent-Replayed": "true",
        "Idempotency-Status": "replayed",
    }
    assert effects() == 1
    if kind == "small-file":
        assert len(sent) >= SMALL
        assert first.streaming  # to the first caller it is still a file


def test_cookies_and_moments_belong_to_the_first_answer(ask: Caller) -> None:
    """Only the first caller gets them."""
    first = ask("headers")
    assert first.cookies["visited"].value == "1"
    assert first["Server-Timing"] == "db;dur=1"
    ask.client.cookies.pop("visited")
    retry = ask("headers")
    assert "visited" not in retry.cookies
    assert "Server-Timing" not in retry
    assert retry["X-Wide"] == first["X-Wide"]


def test_a_template_is_stored_as_rendered(ask: Caller) -> None:
    """Its callbacks run once, for the first response, and what they set is kept."""
    first, retry = ask("template"), ask("template")
    assert first["X-Rendered"] == retry["X-Rendered"] == "yes"
    assert bytes(IdempotencyRecord.objects.get().response_body or b"") == first.content


@override_settings(IDEMPOTENCY={"MAX_BODY": 65_536})
@pytest.mark.parametrize(("kind", "expected"), WITHOUT_BODY.items())
def test_work_whose_response_is_not_stored_never_runs_again(
    ask: Caller, kind: str, expected: tuple[int, int]
) -> None:
    """The first caller gets all of it; a retry learns that the work is done, with which status, and
    where.
    """
    first = ask(kind)
    assert (first.status_code, len(content(first))) == expected
    for _ in range(2):
        retry = ask(kind)
        assert (retry.status_code, retry["Content-Type"]) == (409, "application/problem+json")
        assert (retry.json()["code"], retry.json()["original_status"]) == (
            "response-not-stored",
            expected[0],
        )
        assert (retry["Stripe-Should-Retry"], "Retry-After" in retry) == ("false", False)
        assert retry.get("Location") == first.get("Location")
    assert effects() == 1
    assert IdempotencyRecord.objects.get().status == Status.COMPLETED


#: Kind → what the log says of it at the first request.
SAID = {
    "stream": "it is a stream. Type extensions=[BufferedStreams()]",
    "large": "it is longer than 65,536 bytes",
    "large-file": "it is a stream",
    "no-store": 'it says "no-store"',
}


@override_settings(IDEMPOTENCY={"MAX_BODY": 65_536})
@pytest.mark.parametrize("kind", SAID)
def test_the_log_says_at_the_first_request_that_a_response_is_not_stored(
    ask: Caller, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It is a warning, once for each view; without it only a retry would tell."""
    monkeypatch.setattr(responses, "_TOLD", set())
    ask(kind)
    ask(kind, key="another-key-0123456789")
    said = [
        record.getMessage() for record in caplog.records if "is not stored" in record.getMessage()
    ]
    assert len(said) == 1
    assert SAID[kind] in said[0]


@override_settings(IDEMPOTENCY={"EXTENSIONS": [StatusOnly()]})
def test_what_is_not_to_be_stored_is_not_reported(
    ask: Caller, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that stores no body says nothing."""
    monkeypatch.setattr(responses, "_TOLD", set())
    ask("stream")
    assert not [record for record in caplog.records if "is not stored" in record.getMessage()]


@override_settings(IDEMPOTENCY={"EXTENSIONS": [BufferedStreams()]})
def test_a_stream_may_be_buffered(ask: Caller) -> None:
    """A stream may be buffered: it is produced under the guard, and replayed."""
    first = content(ask("stream"))
    retry = ask("stream")
    assert (content(retry), retry["Idempotent-Replayed"]) == (first, "true")
    assert effects() == 1


@override_settings(IDEMPOTENCY={"EXTENSIONS": [BufferedStreams()], "MAX_BODY": 65_536})
def test_a_stream_longer_than_the_limit_reaches_the_first_caller_whole(ask: Caller) -> None:
    """It is still a stream after the limit; a retry learns that it was not stored."""
    assert len(content(ask("large-stream"))) == WITHOUT_BODY["large-stream"][1]
    assert ask("large-stream").json()["code"] == "response-not-stored"
    assert effects() == 1


@pytest.mark.parametrize("kind", ["large", "large-file"])
def test_what_the_store_can_take_is_replayed(ask: Caller, kind: str) -> None:
    """100 KB, the size of a bulk create's response, needs no change to MAX_BODY."""
    first = content(ask(kind))
    retry = ask(kind)
    assert (len(first), content(retry), retry["Idempotent-Replayed"]) == (LARGE, first, "true")


@override_settings(IDEMPOTENCY={"MAX_BODY": 3})
def test_the_limit_is_the_projects(ask: Caller) -> None:
    """The project sets the limit by MAX_BODY, or by a policy's `max_body`."""
    ask("text")
    assert ask("text").json()["code"] == "response-not-stored"


def test_a_redirect_to_the_login_page_is_remembered(ask: Caller) -> None:
    """A view may have worked before it redirects there, as after a registration."""
    first, retry = ask("login"), ask("login")
    assert (first.status_code, retry["Location"], effects()) == (302, first["Location"], 1)


@override_settings(MIDDLEWARE=["django.middleware.gzip.GZipMiddleware", *settings.MIDDLEWARE])
def test_compression_outside_the_guard_stays_outside(ask: Caller) -> None:
    """The record holds the uncompressed response; each caller gets it in an encoding that it
    accepts.
    """
    first = ask("text", **{"Accept-Encoding": "gzip"})
    retry = ask("text", **{"Accept-Encoding": "gzip"})
    plain = ask("text")
    assert first["Content-Encoding"] == retry["Content-Encoding"] == "gzip"
    assert gzip.decompress(first.content) == gzip.decompress(retry.content) == plain.content
    assert bytes(IdempotencyRecord.objects.get().response_body or b"") == plain.content
    assert effects() == 1


@pytest.mark.parametrize("kind", ["gzip-negotiated"])
def test_compression_inside_the_guard_is_undone(ask: Caller, kind: str) -> None:
    """It was negotiated with the first client; a retry that accepts none gets what it can read.

    So does its own coding.
    """
    first = ask(kind, **{"Accept-Encoding": "gzip"})
    retry = ask(kind)
    assert (first["Content-Encoding"], retry.has_header("Content-Encoding")) == ("gzip", False)
    assert (retry.content, "Access-Control-Allow-Origin" in retry) == (
        gzip.decompress(first.content),
        False,
    )
    assert effects() == 1


@pytest.mark.parametrize(
    ("body", "limit", "stored"),
    [
        (gzip.compress(b"0" * 500), 500, b"0" * 500),
        (gzip.compress(b"0" * 501), 500, gzip.compress(b"0" * 501)),  # it fits only as it is
        (gzip.compress(b"0" * 500)[:-9], 500, gzip.compress(b"0" * 500)[:-9]),
        (b"no gzip", 500, b"no gzip"),
        (b"", 500, b""),
    ],
    ids=["plain", "too long", "cut off", "none", "empty"],
)
def test_a_negotiated_coding(body: bytes, limit: int, stored: bytes) -> None:
    """What is stored is one whole: a plain body without the header, or both as they are."""
    response = HttpResponse(
        body, headers={"Content-Encoding": "gzip", "Vary": "Cookie, Accept-Encoding"}
    )
    outcome = capture(response, resolve(Policy()), limit)
    assert (outcome.body, "Content-Encoding" in dict(outcome.headers)) == (stored, stored == body)


@pytest.mark.parametrize("entry_point", ["mixin", "adapted"])
def test_the_first_answers_type_wins(entry_point: str, user: User) -> None:
    """A retry that accepts another type gets the first response's bytes and type."""
    ask = Caller(entry_point, user)
    first = ask("data", Accept="application/json")
    retry = ask("data", Accept="text/html")
    assert ask("data", key="another", Accept="text/html")["Content-Type"].startswith("text/html")
    assert (retry["Content-Type"], retry.content) == ("application/json", first.content)


@pytest.mark.parametrize(
    ("configured", "runs"),
    [
        ({"KEEP": {422}}, 1),
        ({"KEEP": lambda response: response.status_code != 422}, 2),
        ({"KEEP": lambda response: None}, 1),
    ],
)
def test_a_project_chooses_what_is_kept(ask: Caller, configured: dict[str, Any], runs: int) -> None:
    """A project chooses what is kept by a set of statuses, or by a function of the response."""
    with override_settings(IDEMPOTENCY=configured):
        ask("unprocessable")
        ask("unprocessable")
    assert effects() == runs


@pytest.mark.parametrize("rule", [["ETag"], lambda name: name == "etag"], ids=["names", "function"])
def test_a_project_chooses_which_headers_are_kept(ask: Caller, rule: Any) -> None:
    """A project chooses among the safe headers; the content type is always kept."""
    with override_settings(IDEMPOTENCY={"HEADERS": rule}):
        first, retry = ask("headers"), ask("headers")
    assert (retry["ETag"], retry["Content-Type"]) == (first["ETag"], first["Content-Type"])
    assert "X-Note" in first
    assert "X-Note" not in retry
