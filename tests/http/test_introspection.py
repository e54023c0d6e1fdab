"""The private names of Django and REST framework that `http.bodies` and `http.atomic_requests` use
still mean what we take them for.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.handlers.wsgi import LimitedStream
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.test import RequestFactory
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

from django_idempotency.http import atomic_requests, bodies

FORM = "application/x-www-form-urlencoded"


def posted(body: bytes = b"amount=1", content_type: str = FORM) -> HttpRequest:
    return RequestFactory().post("/", body, content_type=content_type)


def test_what_non_atomic_requests_sets_on_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django's handler asks `alias in view._non_atomic_requests`."""

    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    assert atomic_requests.aliases_of(view) == ["default"]
    assert atomic_requests.aliases_of(transaction.non_atomic_requests(view)) == []


def test_whether_a_body_was_read() -> None:
    """A body is read as a stream, as bytes or as a form; checking this reads nothing."""
    fresh, streamed, held, parsed = (posted() for _ in range(4))
    streamed.read(1)
    assert held.body
    assert parsed.POST
    requests = (fresh, streamed, held, parsed)
    assert list(map(bodies.is_read, requests)) == [False, True, True, True]
    assert list(map(bodies.is_in_memory, requests)) == [False, False, True, True]
    assert list(map(bodies.is_form_parsed, requests)) == [False, False, False, True]


def test_a_long_body_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that was read as a stream, or parsed from it, is read from its beginning."""
    monkeypatch.setattr(bodies, "IN_MEMORY", 1)
    request, uploaded = posted(), RequestFactory().post("/", {"amount": "1"})
    assert b"".join(bodies.chunks(request)) == b"amount=1"
    assert not bodies.is_read(request)
    assert request.POST["amount"] == "1"
    assert bodies.form_fields(uploaded, uploaded)["amount"] == "1"
    assert b"amount" in uploaded.read()


def test_a_request_that_no_server_made() -> None:
    """It has no stream, and nothing to be read."""
    assert bodies.fits(HttpRequest())


def test_how_much_of_a_stream_has_come() -> None:
    """Django's stream knows how many bytes were announced and how many it has passed on; what it
    leaves in memory is a `BytesIO`.
    """
    request = posted(b"12345")
    stream: Any = request._stream
    assert isinstance(stream, LimitedStream)
    request.read(2)
    assert (stream.limit, stream._pos) == (5, 2)  # type: ignore[attr-defined]
    held = posted(b"12345")
    assert held.body
    assert bodies._holds(held._stream, b"12345")


def test_a_form_that_failed_fails_again() -> None:
    """Django would leave an empty form behind."""
    request = posted(b"--x", content_type="multipart/form-data")
    assert bodies.form_fields(request, request) is None
    with pytest.raises(MultiPartParserError):
        request.POST  # noqa: B018


def test_data_that_failed_fails_again() -> None:
    """REST framework would leave empty data behind."""
    request = Request(posted(b"{", content_type="application/json"), parsers=[JSONParser()])
    assert bodies.form_fields(request, request._request) is None
    with pytest.raises(ParseError):
        request.data  # noqa: B018
    assert not request.data
