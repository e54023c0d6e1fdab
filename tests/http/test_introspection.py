"""The private names of Django and REST framework that `http.bodies` and `http.atomic_requests` use still mean what we take them for."""

from __future__ import annotations

from io import BytesIO

import pytest
from django.db import transaction
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


def test_what_non_atomic_requests_sets_on_a_view() -> None:
    """Django's handler asks `alias in view._non_atomic_requests`."""

    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    assert atomic_requests.excluded_aliases(view) == ()
    assert atomic_requests.excluded_aliases(transaction.non_atomic_requests(using="other")(view)) == {"other"}
    atomic_requests.exclude_aliases(view, {"default"})
    assert atomic_requests.excluded_aliases(view) == {"default"}


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


def test_a_stream_that_was_replaced() -> None:
    """A replaced stream is read from its beginning."""
    request = posted()
    assert bodies.stream_of(request).read() == b"amount=1"
    assert bodies.stream_of(HttpRequest()) is None
    request.read()
    bodies.replace_stream(request, BytesIO(b"amount=2"))
    assert request.POST["amount"] == "2"


def test_a_form_that_failed_fails_again() -> None:
    """Django would leave an empty form behind."""
    request = posted(b"--x", content_type="multipart/form-data")
    for _ in range(2):
        with pytest.raises(MultiPartParserError):
            request.POST  # noqa: B018
        bodies.forget_form(request)


def test_data_that_failed_fails_again() -> None:
    """REST framework would leave empty data behind."""
    request = Request(posted(b"{", content_type="application/json"), parsers=[JSONParser()])
    assert request._request.body
    for _ in range(2):
        with pytest.raises(ParseError):
            request.data  # noqa: B018
        assert not request.data
        bodies.forget_data(request)
