"""The same, where DRF's parsers read the body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from rest_framework.exceptions import ParseError
from rest_framework.parsers import (
    BaseParser,
    FileUploadParser,
    FormParser,
    JSONParser,
    MultiPartParser,
)
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from django_idempotency import Policy
from django_idempotency.conf import resolve
from django_idempotency.http.admission import fingerprint

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
USUAL = (JSONParser, FormParser, MultiPartParser)


class ListParser(BaseParser):
    """Returns no pairs at all."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        return json.loads(stream.read())


class MixedNamesParser(ListParser):
    """Returns values that JSON cannot express, as a parser for YAML would."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        return {1: stream.read().decode(), "1": {2: 3, "2": 4}}


def sent(
    body: Any, content_type: str, *, parsers: Any = USUAL, method: str = "POST", name: str = ""
) -> Request:
    disposition: dict[str, Any] = (
        {"HTTP_CONTENT_DISPOSITION": f"attachment; filename={name}"} if name else {}
    )
    raw = APIRequestFactory().generic(method, "/", body, content_type=content_type, **disposition)
    return Request(raw, parsers=[parser() for parser in parsers], parser_context={"kwargs": {}})


def digest(request: Request) -> bytes:
    return fingerprint(request, resolve(Policy()))


def uploaded(content: bytes, *, method: str = "POST") -> Request:
    factory = APIRequestFactory()
    send = {"POST": factory.post, "PUT": factory.put}[method]
    raw = send("/", {"a": "1", "f": SimpleUploadedFile("f.txt", content)}, format="multipart")
    return Request(raw, parsers=[MultiPartParser()])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_form_counts_by_its_pairs_whatever_the_method(method: str) -> None:
    """DRF parses forms of PUT, which Django does not."""
    one, same, other = (
        digest(sent(body, FORM, method=method)) for body in ("a=1&b=2", "b=2&a=1", "a=1&b=3")
    )
    assert one == same
    assert one != other


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_the_view_still_finds_data_and_files(method: str) -> None:
    """The body is parsed once, its files are rewound, and their content counts."""
    request = uploaded(b"one", method=method)
    value = digest(request)
    found: Any = request.data
    assert found["a"] == "1"
    assert found["f"].read() == b"one"
    assert digest(uploaded(b"one", method=method)) == value
    assert digest(uploaded(b"two", method=method)) != value


def test_the_view_still_finds_json_and_the_stream() -> None:
    """The view finds data, or the stream that its own parser needs."""
    request = sent(b'{"a": 1}', JSON)
    digest(request)
    assert request.data == {"a": 1}
    request = sent(b'{"a": 1}', JSON)
    digest(request)
    assert request.stream.read() == b'{"a": 1}'


@pytest.mark.parametrize("content_type", [JSON, FORM, "image/png"])
def test_data_that_a_permission_has_read_counts_all_the_same(content_type: str) -> None:
    """Its bytes are gone then, but another body must still be another request."""
    digests = []
    for body in (b'{"a": 1}', b'{"a": 1.0}', b'{"a": 2}', b'{"a": 1}'):
        request = sent(body, content_type, parsers=(*USUAL, FileUploadParser), name="x.png")
        assert request.data is not None
        digests.append(digest(request))
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3


def test_data_after_a_csrf_check_counts_all_the_same() -> None:
    """The check reads the form of a JSON request, which is empty."""
    digests = []
    for body in (b'{"a": 1}', b'{"a": 2}'):
        request = sent(body, JSON)
        assert not request._request.POST
        assert request.data
        digests.append(digest(request))
    assert digests[0] != digests[1]


@pytest.mark.parametrize(
    "content_type", ["image/png", "multipart/form-data; boundary=b", FORM, "text/plain"]
)
def test_a_parser_that_takes_everything_as_a_file(content_type: str) -> None:
    """FileUploadParser takes forms too, and returns no pairs; the view reads the file from its
    start.
    """
    one, same, other = (
        sent(body, content_type, parsers=[FileUploadParser], name="x.png")
        for body in (b"\x89PNG", b"\x89PNG", b"GIF")
    )
    assert digest(one) == digest(same) != digest(other)
    found: Any = one.data
    assert found["file"].read() == b"\x89PNG"


@pytest.mark.parametrize("parser", [ListParser, MixedNamesParser])
def test_a_projects_own_parser_may_return_anything(parser: type[BaseParser]) -> None:
    """What the parser returns is compared."""
    one, same, other = (
        digest(sent(body, FORM, parsers=[parser])) for body in (b"[1, 2]", b"[1, 2]", b"[2, 1]")
    )
    assert one == same
    assert one != other


def test_a_form_that_no_parser_takes_is_left_to_the_view() -> None:
    """Only a view that reads the data responds 415; the fingerprint does not read it."""
    one, other = (digest(sent(body, FORM, parsers=[JSONParser])) for body in (b"a=1", b"a=2"))
    assert one != other


class FailingParser(BaseParser):
    """Has read some of the body when it fails."""

    media_type = "multipart/form-data"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        raise ValueError(stream.read(10))


@pytest.mark.parametrize("size", [100, 3_000_000])
@pytest.mark.parametrize(
    ("parser", "error"), [(MultiPartParser, ParseError), (FailingParser, ValueError)]
)
def test_a_broken_form_breaks_in_the_view_that_reads_it(
    parser: type[BaseParser], error: Any, size: int
) -> None:
    """Its bytes are compared; a view that streams it gets all of it, and one that reads the data
    gets the error.
    """
    body = b"x" * size
    one, same, other = (
        sent(content, "multipart/form-data", parsers=[parser]) for content in (body, body, body[1:])
    )
    assert digest(one) == digest(same) != digest(other)
    assert same.stream.read() == body
    with pytest.raises(error):
        _ = one.data
    for request in (one, same, other):
        request.close()


class NestedParser(MultiPartParser):
    """Puts the files of a form among its fields, as parsers of nested forms do."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        found: Any = super().parse(stream, media_type, parser_context)
        return {"a": found.data["a"], "receipts": [{"file": found.files["f"]}]}


def test_a_file_that_a_parser_has_nested_counts_by_its_content() -> None:
    """Another receipt under the same name is another request, and the view reads it from its
    start.
    """
    one, same, other = (uploaded(content) for content in (b"one", b"one", b"two"))
    for request in (one, same, other):
        request.parsers = [NestedParser()]
    assert digest(one) == digest(same) != digest(other)
    found: Any = one.data
    assert found["receipts"][0]["file"].read() == b"one"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a": 1}', b'{"a": "1"}'),
        (b'{"a": null}', b'{"a": "null"}'),
        (b'{"a": {"b": 1}}', b'{"a": "{\\"b\\": 1}"}'),
        (b"[1]", b'{"": [1]}'),
        (b'{"a": [1, null]}', b'{"a": [1, "null"]}'),
    ],
)
def test_data_that_was_read_counts_by_type(one: bytes, other: bytes) -> None:
    """A text that looks like a number is not one, when a permission has read the data with a
    project's parser.
    """
    digests = []
    for body in (one, other):
        request = sent(body, JSON, parsers=[ListParser])
        assert request.data
        digests.append(digest(request))
    assert digests[0] != digests[1]
