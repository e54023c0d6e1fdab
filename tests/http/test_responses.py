"""A response as it is remembered, and as it is sent again."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from django.http import FileResponse, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import BadHeaderError, HttpResponseBase
from django.test import override_settings
from django.utils import translation

from django_idempotency import BufferedStreams, Policy, StatusOnly
from django_idempotency.conf import resolve
from django_idempotency.core.conclusions import WorkResult
from django_idempotency.core.records import MISSING, Outcome
from django_idempotency.errors import RecordUnreadable, ResponseNotStored
from django_idempotency.http.call import ending_of
from django_idempotency.http.responses import UNSAFE_HEADERS, capture, rebuild
from django_idempotency.stores.base import BaseStore

BINARY = bytes(range(256))
NEVER_KEPT = [*UNSAFE_HEADERS, "x-our-csrf"]


def captured(response: HttpResponseBase, **fields: Any) -> Outcome:
    policy = resolve(Policy(**fields))
    return capture(
        response, policy, BaseStore.max_body if policy.max_body is None else policy.max_body
    )


def ended(response: HttpResponseBase, **fields: Any) -> WorkResult:
    return ending_of(response, resolve(Policy(**fields)))


# -------------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    "status", [200, 201, 202, 204, 301, 302, 303, 307, 308, 402, 404, 405, 406, 410, 422, 451]
)
def test_an_answer_is_kept(status: int) -> None:
    """Success, redirects, and refusals that the same request would meet again, are kept."""
    response = HttpResponse(status=status, headers={"Location": "/charges/1/"})
    assert ended(response) is WorkResult.KEPT
    rebuilt = rebuild(captured(response))
    assert (rebuilt.status_code, rebuilt["Location"]) == (status, "/charges/1/")


@pytest.mark.parametrize("status", [400, 401, 403, 408, 409, 412, 415, 425, 428, 429])
def test_a_refusal_is_dropped(status: int) -> None:
    """The client may correct or repeat the request under the same key, unless the policy says
    otherwise.
    """
    assert ended(HttpResponse(status=status)) is WorkResult.DROPPED
    assert ended(HttpResponse(status=status), keep={status}) is WorkResult.KEPT
    assert ended(HttpResponse(status=status), keep={499}) is WorkResult.DROPPED
    assert ended(HttpResponse(status=status), keep=set()) is WorkResult.DROPPED
    assert ended(HttpResponse(status=status), keep=lambda response: True) is WorkResult.KEPT
    assert ended(HttpResponse(status=status), keep=lambda response: None) is WorkResult.DROPPED


def test_a_keep_function_decides_both_ways_below_500() -> None:
    """A `keep` function never keeps a failure."""
    assert ended(HttpResponse(status=201), keep=lambda response: False) is WorkResult.DROPPED
    for status in (500, 503):
        assert ended(HttpResponse(status=status), keep=lambda response: True) is WorkResult.FAILED


@pytest.mark.parametrize(
    "location", ["/accounts/login/", "/accounts/login/?next=/charges/", "/orders/1/?next=/charges/"]
)
def test_a_redirect_is_no_refusal(location: str) -> None:
    """Wherever it goes, also if the client has chosen that: a view redirects to a login page after
    a registration.
    """
    with override_settings(LOGIN_URL="/accounts/login/"):
        assert ended(HttpResponseRedirect(location)) is WorkResult.KEPT


# ------------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize("body", [BINARY, b"", b"\0", "é".encode("latin-1")], ids=repr)
def test_a_body_is_bytes(body: bytes) -> None:
    """No body is changed, and an empty one is not missing."""
    outcome = captured(HttpResponse(body, content_type="application/octet-stream"))
    assert outcome.body == body
    assert rebuild(outcome).content == body


@pytest.mark.parametrize(("size", "kept"), [(10, True), (11, False)])
def test_a_body_above_the_limit_is_not_kept(size: int, kept: bool) -> None:
    """The caller still gets it in full; a body of exactly the limit fits."""
    response = HttpResponse(b"x" * size)
    assert (captured(response, max_body=10).body is not MISSING) is kept
    assert response.content == b"x" * size


@pytest.mark.parametrize("value", ["no-store", "private, No-Store"])
def test_what_must_not_be_stored_is_not(value: str) -> None:
    """A file is not even opened for it."""
    headers = {"Cache-Control": value, "Location": "/1/"}
    assert captured(HttpResponse(b"secret", headers=headers)).body is MISSING
    assert captured(FileResponse(BytesIO(b"secret"), headers=headers)).body is MISSING


def test_an_empty_body_has_nothing_to_hide() -> None:
    """A redirect of a `no-store` view, as each is of Django's admin, is replayed: it has no
    body.
    """
    response = HttpResponseRedirect("/1/", headers={"Cache-Control": "no-store"})
    replay = rebuild(captured(response))
    assert (replay.status_code, replay["Location"], replay["Cache-Control"]) == (
        302,
        "/1/",
        "no-store",
    )


def test_a_stream_is_never_touched() -> None:
    """An event stream would make us hang."""
    response = StreamingHttpResponse(iter(lambda: pytest.fail("consumed"), None))
    assert captured(response).body is MISSING


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_a_stream_may_be_buffered(count: int) -> None:
    """Up to the limit it is stored; the first caller gets every byte, and beyond the limit it is
    still a stream.
    """
    taken = []

    def chunks() -> Iterator[bytes]:
        for number in range(count):
            taken.append(number)
            yield b"12345"

    response = StreamingHttpResponse(chunks())
    outcome = captured(response, extensions=[BufferedStreams()], max_body=15)
    assert outcome.body == (b"12345" * count if count <= 3 else MISSING)
    assert len(taken) == min(count, 4)
    assert response.getvalue() == b"12345" * count


# close() ends a request: Django looks at connections that other tests have left open
@pytest.mark.django_db
@pytest.mark.parametrize(("size", "kept"), [(0, True), (10, True), (11, False)])
def test_a_small_file_is_kept(size: int, kept: bool) -> None:
    """A file's length is known beforehand; a large one goes to the caller unread."""
    source = BytesIO(b"x" * size)
    response = FileResponse(source, filename="receipt.pdf", as_attachment=True)
    outcome = captured(response, max_body=10)
    assert outcome.body == (b"x" * size if kept else MISSING)
    assert response.getvalue() == b"x" * size
    response.close()
    assert source.closed
    if kept:
        again = rebuild(outcome)
        assert (again.content, again["Content-Disposition"]) == (
            b"x" * size,
            'attachment; filename="receipt.pdf"',
        )


def test_a_response_without_a_body_counts_as_done() -> None:
    """The problem has the status and the location of what was made, and asks for no retry."""
    with pytest.raises(ResponseNotStored) as caught:
        rebuild(Outcome(status=201, headers=(("location", "/charges/1/"), ("X-Secret", "s"))))
    problem = caught.value
    assert {name.lower(): value for name, value in problem.headers.items()} == {
        "location": "/charges/1/",
        "stripe-should-retry": "false",
    }
    assert problem.extensions == {"original_status": 201}


# ------------------------------------------------------------------------------------------ headers


@pytest.mark.parametrize("name", sorted(NEVER_KEPT))
@override_settings(CSRF_HEADER_NAME="HTTP_X_OUR_CSRF")
def test_a_header_of_one_moment_or_one_client_is_never_kept(name: str) -> None:
    """Such a header is not kept even if the policy asks for it."""
    for fields in ({}, {"headers": [name]}, {"headers": lambda name: True}):
        response = HttpResponse(headers={name.title(): "x", "ETag": '"1"'})
        names = {name.lower() for name, _ in captured(response, **fields).headers}
        assert name not in names
        assert "content-type" in names
    assert {
        "set-cookie",
        "date",
        "server-timing",
        "www-authenticate",
        "x-csrftoken",
        "connection",
    } <= {*NEVER_KEPT}


def test_cookies_are_never_kept() -> None:
    """A session belongs to one response."""
    response = HttpResponse()
    response.set_cookie("sessionid", "secret")
    outcome = captured(response)
    assert "secret" not in repr(outcome)
    assert not rebuild(outcome).cookies


SAFE = {
    "Location": "/1/",
    "ETag": '"1"',
    "X-Receipt": "7",
    "Content-Language": "en",
    "Link": "</1/>; rel=self",
}


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (None, {*SAFE}),
        ([], set()),
        (["location", "ETAG"], {"Location", "ETag"}),
        (lambda name: name.startswith("x-"), {"X-Receipt"}),
    ],
)
def test_a_policy_chooses_among_the_safe_headers(rule: Any, kept: set[str]) -> None:
    """The content type is always kept: without it the bytes mean nothing."""
    outcome = captured(
        HttpResponse(b"{}", content_type="application/json", headers=SAFE), headers=rule
    )
    assert dict(outcome.headers) == {"Content-Type": "application/json"} | {
        name: SAFE[name] for name in kept
    }
    replay = rebuild(outcome)
    assert {**replay.headers} == {
        **dict(outcome.headers),
        "Idempotent-Replayed": "true",
        "Idempotency-Status": "replayed",
    }


def test_an_answer_without_a_content_type_gets_none() -> None:
    """A 204 has no content type."""
    response = HttpResponse(status=204)
    del response["Content-Type"]
    assert {**rebuild(captured(response)).headers} == {
        "Idempotent-Replayed": "true",
        "Idempotency-Status": "replayed",
    }


@pytest.mark.parametrize("value", ["café", "ключ", "a; filename*=UTF-8''%E2%82%AC"])
def test_a_header_beyond_ascii_comes_back_as_it_went(value: str) -> None:
    """The header returns byte for byte: Django encodes it once, and not again."""
    response = HttpResponse(headers={"X-Name": value})
    replay = rebuild(captured(response))
    assert set(response.serialize_headers().splitlines()) < set(
        replay.serialize_headers().splitlines()
    )


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: a=b", "a\nb"])
def test_a_stored_line_break_injects_no_header(value: str) -> None:
    """The database may hold a line break, whatever wrote it."""
    with pytest.raises(RecordUnreadable) as refused:
        rebuild(Outcome(status=200, headers=(("X-Name", value),), body=b""))
    assert isinstance(refused.value.__cause__, BadHeaderError)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "X-Request-ID",
            "Request-Id",
            "X-Correlation-ID",
            "traceparent",
            "X-B3-TraceId",
            "X-Amzn-Trace-Id",
            "Age",
        ),
        *(
            "RateLimit",
            "RateLimit-Remaining",
            "X-RateLimit-Reset",
            "X-Rate-Limit-Limit",
            "X-Runtime",
        ),
        *(
            "X-Auth-Token",
            "X-Refresh-Token",
            "Session-Token",
            "X-Session-Id",
            "X-Api-Key",
            "Client-Secret",
            "X-JWT",
        ),
    ],
)
def test_what_belongs_to_one_exchange_or_is_a_secret_is_kept_only_by_name(name: str) -> None:
    """A policy that names the header has decided; a function that allows every header has not
    considered it.
    """
    response = HttpResponse(headers={name: "1"})
    assert name not in dict(captured(response).headers)
    assert name not in dict(captured(response, headers=lambda name: True).headers)
    assert name in dict(captured(response, headers=[name]).headers)


@pytest.mark.parametrize(
    "name", ["ETag", "Location", "X-Total-Count", "Tokenizer", "Secretary", "Retry-After", "Link"]
)
def test_what_only_sounds_like_it_is_kept(name: str) -> None:
    """Only whole words match."""
    assert name in dict(captured(HttpResponse(headers={name: "1"})).headers)


def test_the_reason_phrase_comes_back() -> None:
    """The phrase is stored only if it is not the standard one."""
    outcome = captured(HttpResponse(status=201, reason="Charge Created"))
    assert rebuild(outcome).reason_phrase == "Charge Created"
    assert ":reason" not in rebuild(outcome).headers
    assert [name for name, _ in captured(HttpResponse(status=201)).headers] == ["Content-Type"]


def test_the_language_is_that_of_the_body() -> None:
    """LocaleMiddleware would put the language of the retry on the body of the first request."""
    with (
        override_settings(MIDDLEWARE=["django.middleware.locale.LocaleMiddleware"]),
        translation.override("de"),
    ):
        outcome = captured(HttpResponse("Bezahlt"))
        assert (
            dict(captured(HttpResponse(headers={"Content-Language": "fr"})).headers)[
                "Content-Language"
            ]
            == "fr"
        )
    assert rebuild(outcome)["Content-Language"] == "de"
    with translation.override("de"):
        assert "Content-Language" not in dict(captured(HttpResponse("Bezahlt")).headers)


def test_a_replay_has_data_as_a_response_of_rest_framework() -> None:
    """Code around a view reads `response.data`; a response that is not JSON has none."""

    def data(body: bytes, content_type: str) -> Any:
        replay: Any = rebuild(captured(HttpResponse(body, content_type=content_type)))
        return replay.data

    assert data(b'{"id": 7}', "application/vnd.api+json; charset=utf-8") == {"id": 7}
    assert data(b"<p>", "text/html") is data(b"{", "application/json") is None


def test_what_mints_secrets() -> None:
    """With `StatusOnly()` the status is stored, and only headers that are named: Location may
    be the secret.
    """
    response = HttpResponse(
        b"secret", status=201, headers={"Location": "/secret/", "X-Key-Id": "7"}
    )
    assert captured(response, extensions=[StatusOnly()]) == Outcome(status=201, body=MISSING)
    named = captured(response, extensions=[StatusOnly()], headers=["x-key-id"])
    assert named.headers == (("X-Key-Id", "7"),)
    by_function = captured(
        response, extensions=[StatusOnly()], headers=lambda name: name == "location"
    )
    assert by_function.headers == (("Location", "/secret/"),)


def test_a_coding_of_several_members_stays() -> None:
    """What follows the first member would be lost: such a body is stored as it is, with its
    coding.
    """
    body = gzip.compress(b"first,") + gzip.compress(b"second")
    response = HttpResponse(body, headers={"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
    outcome = capture(response, resolve(Policy()), 1000)
    assert outcome.body == body
    assert ("Content-Encoding", "gzip") in outcome.headers
