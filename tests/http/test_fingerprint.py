"""What makes a request the same request."""

from __future__ import annotations

import json
import tracemalloc
from tempfile import SpooledTemporaryFile
from typing import Any

import pytest
from django.core.exceptions import BadRequest
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.test import RequestFactory
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

from django_idempotency import Policy
from django_idempotency.conf import resolve
from django_idempotency.errors import ConfigurationError, RequestTooLarge
from django_idempotency.http.admission import fingerprint
from django_idempotency.http.bodies import keep
from django_idempotency.http.selection import Document

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def request(
    body: str | bytes = b"",
    content_type: str = JSON,
    *,
    method: str = "POST",
    path: str = "/",
    **extra: Any,
) -> HttpRequest:
    return RequestFactory().generic(method, path, body, content_type=content_type, **extra)


def digest(*args: Any, rule: Any = "request", **kwargs: Any) -> bytes:
    value = fingerprint(request(*args, **kwargs), resolve(Policy(fingerprint=rule)))
    assert len(value) == 32
    return value


def multipart(
    *parts: tuple[str, str | None, str, bytes], boundary: str = "b1"
) -> tuple[bytes, str]:
    """Write a multipart body from (name, filename, content type, content)."""
    body = b""
    for name, filename, content_type, content in parts:
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'.encode()
        if filename is not None:
            body += f'; filename="{filename}"\r\nContent-Type: {content_type}'.encode()
        body += b"\r\n\r\n" + content + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


AMOUNT = ("amount", None, "", b"1")
RECEIPT = ("receipt", "r.png", "image/png", b"\x89PNG\r\n\x1a\n\0")


@pytest.mark.parametrize(
    "other",
    [
        {"method": "PUT"},
        {"path": "/other/"},
        {"path": "/?a=1"},
        {"content_type": "text/plain"},
        {"body": b'{"a":2}'},
    ],
    ids=str,
)
@pytest.mark.parametrize("rule", ["request", "raw"])
def test_method_path_query_content_type_and_body_count(rule: str, other: dict[str, Any]) -> None:
    """A change of any of them makes another request."""
    base: dict[str, Any] = {"body": b'{"a":1}', "rule": rule}
    assert digest(**base) == digest(**base)
    assert digest(**base) != digest(**(base | other))


def test_headers_do_not_count() -> None:
    """Tokens rotate between retries, and a retry may accept another type."""
    assert digest(b"{}") == digest(
        b"{}", headers={"Authorization": "Token x", "Accept": "text/html"}
    )


@pytest.mark.parametrize("content_type", [JSON, f"{JSON}; charset=utf-8", "APPLICATION/JSON"])
def test_parameters_and_case_of_the_content_type_do_not_count(content_type: str) -> None:
    """They mean the same."""
    assert digest(b'{"a": 1}', content_type) == digest(b'{"a":1}')


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'{"a":1,"b":[2,{"c":3}]}', b'{ "b" : [2, {"c": 3}],\n"a": 1 }', True),
        (b'"\\u00e9"', '"é"'.encode(), True),
        (b"[1,2]", b"[2,1]", False),
        (b"1.0", b"1", False),
        (b"1e2", b"100", False),
        (b"0.1", b"0.10", False),
        (b"12345678901234567890.01", b"12345678901234567890.02", False),
        (b"9007199254740993", b"9007199254740992", False),
        (b'"1"', b"1", False),
        (b"null", b"", False),
        (b'{"a":1}', b'{"a":1,"b":null}', False),
        (b'{"a":1,"a":2}', b'{"a":2}', False),
        # By bytes: which of the two counts is not ours to say.
        (
            b'{"a":1,"a":2}',
            b'{"a":1, "a":2}',
            False,
        ),
        (b"NaN", b"NaN", True),
        (b"NaN", b" NaN", False),
        (b"[" * 100_000, b" " + b"[" * 100_000, False),
        (b'{"a":', b'{"a": ', False),
        (b"\xff", b"\xfe", False),
        (b'"' + b"x" * (1 << 20) + b'"', b'"' + b"x" * (1 << 20) + b'" ', False),
    ],
    ids=lambda value: repr(value)[:40],
)
@pytest.mark.parametrize("content_type", [JSON, "application/vnd.api+json"])
def test_json_counts_by_value(content_type: str, one: bytes, other: bytes, same: bool) -> None:
    """Order and spacing do not count; a body without a safe value is compared by its bytes, and
    nothing raises.
    """
    assert (digest(one, content_type) == digest(other, content_type)) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a=1&b=2", "b=2&a=1", True),
        ("a=1&a=2", "a=2&a=1", False),
        ("a=%C3%A9", "a=é", True),
        ("a=1+2", "a=1%202", True),
        ("a=1", "a=1&b=", False),
        ("a=1&b=2", "a=1%26b=2", False),
        # Django masks it anew for each page.
        (
            "a=1&csrfmiddlewaretoken=x",
            "csrfmiddlewaretoken=y&a=1",
            True,
        ),
    ],
)
def test_a_form_counts_by_its_pairs(one: str, other: str, same: bool) -> None:
    """Pairs count as the view sees them: the order within a name matters, the CSRF token does
    not.
    """
    assert (digest(one, FORM) == digest(other, FORM)) is same


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (multipart(AMOUNT, RECEIPT, boundary="another"), True),
        (multipart(RECEIPT, AMOUNT), True),
        (multipart(AMOUNT, (*RECEIPT[:3], RECEIPT[3] + b"\0")), False),
        (multipart(AMOUNT, ("receipt", "other.png", *RECEIPT[2:])), False),
        (multipart(AMOUNT, ("receipt", "r.png", "text/html", RECEIPT[3])), False),
        (multipart(AMOUNT, ("copy", *RECEIPT[1:])), False),
        (multipart(AMOUNT, ("receipt", None, "", b"r.png")), False),
        (multipart(("amount", None, "", b"2"), RECEIPT), False),
        (multipart(AMOUNT, RECEIPT, RECEIPT), False),
        (multipart(AMOUNT), False),
    ],
    ids=[
        "boundary",
        "order",
        "content",
        "filename",
        "type",
        "name",
        "field",
        "value",
        "twice",
        "none",
    ],
)
def test_multipart_counts_by_its_parts(other: tuple[bytes, str], same: bool) -> None:
    """Names, file names, types and contents count; a new boundary or another order of names is the
    same request.
    """
    assert (digest(*multipart(AMOUNT, RECEIPT)) == digest(*other)) is same


def test_bytes_that_no_encoding_can_write_are_still_a_fingerprint() -> None:
    """A charset chosen by the client may decode to lone surrogates."""
    body, content_type = multipart(("a", None, "", b"+2AA-"))
    other, _ = multipart(("a", None, "", b"+2AE-"))
    charset = f"{content_type}; charset=utf-7"
    assert digest(body, charset) != digest(other, charset)


@pytest.mark.parametrize(
    ("rule", "same"),
    [("request", True), ("raw", False), ("headers", True), (lambda request: "a", True)],
)
def test_a_policy_chooses_what_of_the_body_counts(rule: Any, same: bool) -> None:
    """The body counts by value, by bytes, or not at all."""
    assert (digest(b'{"a":1}', rule=rule) == digest(b'{ "a": 1}', rule=rule)) is same


def test_headers_leave_the_body_unread() -> None:
    """The option is for views that set upload handlers, or read a stream."""
    sent = request(*multipart(AMOUNT, RECEIPT))
    fingerprint(sent, resolve(Policy(fingerprint="headers")))
    sent.upload_handlers = list(sent.upload_handlers)
    assert sent.read().startswith(b"--b1")


@pytest.mark.parametrize("value", [b"a", "a", bytearray(b"a")], ids=repr)
def test_a_projects_own_fingerprint_counts_beside_method_and_path(value: Any) -> None:
    """It may be bytes or text, and the rest of the request is still compared."""
    assert digest(rule=lambda request: value) == digest(rule=lambda request: b"a")
    assert digest(rule=lambda request: value) != digest(rule=lambda request: b"b")
    assert digest(rule=lambda request: value) != digest(rule=lambda request: value, path="/other/")


@pytest.mark.parametrize("value", [None, 5, 5.0, ["a"], {"a": 1}])
def test_a_projects_own_fingerprint_must_be_bytes_or_text(value: Any) -> None:
    """`bytes(5)` would be five zeros: every request would be the same one."""
    with pytest.raises(ConfigurationError, match="fingerprint"):
        digest(rule=lambda request: value)


@pytest.mark.parametrize("body", [b'{"amount": ', b"\xff", b"{}", b"[]", b"7"])
def test_a_body_that_a_projects_own_fingerprint_cannot_read(body: bytes) -> None:
    """All of it is compared, and the view says what is wrong with it."""

    def rule(request: HttpRequest) -> str:
        return str(json.loads(request.body)["amount"].strip())

    assert digest(body, rule=rule) == digest(body)
    assert digest(body, rule=rule) != digest(body + b" ", rule="raw")


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_the_view_still_finds_the_body(method: str) -> None:
    """The view finds it as bytes, and as a stream."""
    for limit in (10, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("django.conf.settings.DATA_UPLOAD_MAX_MEMORY_SIZE", limit)
            sent = request(b"x" * 100, "application/octet-stream", method=method)
            fingerprint(sent, resolve(Policy()))
            assert sent.read(7) + sent.read() == b"x" * 100


def test_the_view_still_finds_the_form_and_its_files_rewound() -> None:
    """Django parses them once."""
    body, content_type = multipart(AMOUNT, RECEIPT)
    sent = request(body, content_type)
    fingerprint(sent, resolve(Policy()))
    assert sent.POST["amount"] == "1"
    upload: Any = sent.FILES["receipt"]
    assert upload.read() == RECEIPT[3]


@pytest.mark.parametrize(
    "content_type", ["application/octet-stream", FORM, "multipart/form-data; boundary=b1", JSON]
)
def test_a_body_that_was_read_before_is_reported_as_gone(content_type: str) -> None:
    """Otherwise every body would be the same request, and a retry with another body would get a
    response.
    """
    sent = request(b"x" * 100, content_type)
    sent.read(10)
    with pytest.raises(ConfigurationError, match="headers"):
        fingerprint(sent, resolve(Policy()))


def test_raw_takes_the_parts_of_a_form_that_is_parsed_already() -> None:
    """Django's CSRF check has parsed the form for its token."""
    sent = request(*multipart(AMOUNT, RECEIPT))
    assert sent.POST["amount"] == "1"
    raw = resolve(Policy(fingerprint="raw"))
    value = fingerprint(sent, raw)
    changed = request(*multipart(("amount", None, "", b"2"), RECEIPT))
    assert changed.POST["amount"] == "2"
    assert fingerprint(changed, raw) != value


@pytest.mark.parametrize("content_type", ["application/octet-stream", JSON])
def test_chunks_that_come_without_a_length(content_type: str) -> None:
    """On ASGI they are in a file, and Django refuses to return a long one as `body`."""
    content = b"x" * 3_000_000
    headers = [(b"content-type", content_type.encode()), (b"transfer-encoding", b"chunked")]
    with SpooledTemporaryFile(1000) as taken:
        taken.write(content)
        taken.seek(0)
        sent = ASGIRequest(
            {"type": "http", "method": "POST", "path": "/", "headers": headers}, taken
        )
        fingerprint(sent, resolve(Policy()))
        assert sent.read() == content
        sent._stream.close()


@pytest.mark.parametrize(
    "content_type",
    ["application/octet-stream", JSON, FORM, "multipart/form-data; boundary=b1", "text/plain"],
)
@pytest.mark.parametrize("limit", [None, 2_621_440])
def test_a_long_body_is_not_held_in_memory(
    settings: Any, content_type: str, limit: int | None
) -> None:
    """No kind of body is held, whatever limit the project gives its own views; the view can read
    all of it.
    """
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = limit
    if content_type.startswith("multipart"):
        body, _ = multipart(("receipt", "r.png", "image/png", b"x" * 8_000_000))
    else:
        body = b"x" * 8_000_000
    sent = request(body, content_type)
    tracemalloc.start()
    try:
        fingerprint(sent, resolve(Policy()))
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert sent.read() == body
    sent.close()


@pytest.mark.parametrize("size", [1000, 3_000_000])
def test_a_parsed_form_can_still_be_streamed(size: int) -> None:
    """A view that reads the bytes of a multipart form gets all of them, and may also read its
    fields.
    """
    body, content_type = multipart(AMOUNT, ("receipt", "r.png", "image/png", b"x" * size))
    sent = request(body, content_type)
    fingerprint(sent, resolve(Policy()))
    assert sent.read() == body
    assert sent.POST["amount"] == "1"
    sent.close()


def test_a_broken_form_breaks_in_the_view_that_reads_it() -> None:
    """A view that ignores the form never meets the error, and its bytes are compared."""
    body = b"x" * 100
    sent = request(body, "multipart/form-data")
    assert fingerprint(sent, resolve(Policy())) == digest(body, "multipart/form-data")
    assert digest(body[1:], "multipart/form-data") != digest(body, "multipart/form-data")
    with pytest.raises(MultiPartParserError):
        _ = sent.POST


def test_a_form_in_a_charset_that_django_refuses() -> None:
    """A view that ignores the form has its bytes compared, and one that reads it gets the error."""
    latin = f"{FORM}; charset=latin-1"
    sent = request(b"a=1", latin)
    assert fingerprint(sent, resolve(Policy())) == digest(b"a=1", latin) != digest(b"a=2", latin)
    with pytest.raises(BadRequest):
        _ = sent.POST


BOUNDED = Policy(max_request_body=1000)


@pytest.mark.parametrize(
    "content_type", ["application/octet-stream", JSON, FORM, "multipart/form-data; boundary=b1"]
)
def test_more_than_the_bound_is_refused_unread(content_type: str) -> None:
    """413 before a byte is read, also by a function; a body at the bound passes, and so does one
    that is not compared.
    """
    sent = request(b"x" * 1001, content_type)
    with pytest.raises(RequestTooLarge):
        fingerprint(
            sent, resolve(Policy(max_request_body=1000, fingerprint=lambda request: request.read()))
        )
    with pytest.raises(RequestTooLarge) as refused:
        fingerprint(sent, resolve(BOUNDED))
    assert (refused.value.status, refused.value.extensions) == (413, {"max_request_body": 1000})
    assert sent.read() == b"x" * 1001
    fingerprint(request(b"x" * 1000, content_type), resolve(BOUNDED))
    fingerprint(
        request(b"x" * 1001, content_type),
        resolve(Policy(max_request_body=1000, fingerprint="headers")),
    )


def test_what_is_selected_from_is_bounded_too() -> None:
    """A key or a fingerprint that an expression selects reads the body as well."""
    sent = request(b'{"a": 1' + b" " * 1000 + b"}")
    with pytest.raises(RequestTooLarge):
        fingerprint(sent, resolve(Policy(max_request_body=1000, fingerprint="body.a")))
    with pytest.raises(RequestTooLarge):
        _ = Document(sent, None, 1000)["body"]


def test_what_a_permission_has_parsed_is_still_compared_by_value() -> None:
    """This needs the bytes from before: DRF's data has merged the floats and the duplicate
    names.
    """

    def read(body: bytes, *, held: bool) -> bytes:
        sent = request(body)
        if held:
            keep(sent)
        parsed = Request(sent, parsers=[JSONParser()])
        assert parsed.data
        return fingerprint(parsed, resolve(Policy()))

    one, other = b'{"amount": 0.1}', b'{"amount": 0.1000000000000000055}'
    assert read(one, held=True) != read(other, held=True)
    assert read(one, held=True) == digest(b'{ "amount":0.1}')
