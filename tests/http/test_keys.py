"""The key as it is read from a request."""

from __future__ import annotations

import uuid
from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.test import RequestFactory, override_settings

from django_idempotency import Policy
from django_idempotency.errors import KeyMalformed, KeyMissing
from django_idempotency.http.admission import key_to_guard
from django_idempotency.http.plan import ANY_POLICY, plan_of

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
HEADER = "Idempotency-Key"

MALFORMED = {
    "empty": "",
    "empty, quoted": '""',
    "spaces": "   ",
    "tabs": "\t\t",
    "256 characters": "k" * 256,
    "256 characters, quoted": f'"{"k" * 256}"',
    "NUL": "a\0b",
    "line break": "a\r\nb",
    "a line break at the end": "a\n",
    "tab inside": "a\tb",
    "escape character": "a\x1b[31mb",
    "DEL": "a\x7f",
    "Latin-1": "caf\xe9",
    "UTF-8 bytes as a server hands them on": "schl\xc3\xbcssel",
    "beyond Latin-1": "ключ",
    "non-ASCII, quoted": '"\xe9"',
    "no closing quote": '"a',
    "no opening quote": 'a"',
    "a quote inside": 'a"b',
    "a bare quote": '"',
    "text behind the quote": '"a"b',
    "parameters of the structured field": '"a";b=1',
    "an escaped closing quote": '"a\\"',
    "an escape of another character": '"a\\b"',
    "a control character, quoted": '"a\x01b"',
    "comma": "a,b",
    "only a comma": ",",
    "two quoted keys": '"a","b"',
    "the same key twice": f'"{UUID}", "{UUID}"',
    "the same bare key twice": f"{UUID},{UUID}",
    "a list": '("a" "b")',
}

WELL_FORMED = {
    UUID: UUID,
    f'"{UUID}"': UUID,
    "stripe-node-retry-3c9f0d0e-1a2b-0c3d-f4e5-61728394a5b6": "stripe-node-retry-3c9f0d0e-1a2b-0c3d-f4e5-61728394a5b6",
    "order 17 / retry": "order 17 / retry",
    '"order 17 / retry"': "order 17 / retry",
    f" \t{UUID} ": UUID,
    f' "{UUID}"\t': UUID,
    r'"a\"b\\c"': r'a"b\c',
    '"a,b"': "a,b",
    '" "': " ",
    r"back\slash": r"back\slash",
    "0": "0",
    "k" * 255: "k" * 255,
    f'"{"k" * 255}"': "k" * 255,
    '"' + r"\\" * 255 + '"': "\\" * 255,
    "!#$%&'()*+-./:;<=>?@[]^_`{|}~": "!#$%&'()*+-./:;<=>?@[]^_`{|}~",
}


def guarding_key(request: HttpRequest, policy: Policy) -> object:
    """Return the key that a request is guarded under, or `None`."""
    keyed = key_to_guard(request, policy)
    return None if keyed is None else keyed.key


def posted(key: str | None = None, *, method: str = "POST") -> HttpRequest:
    extra: dict[str, Any] = {} if key is None else {"HTTP_IDEMPOTENCY_KEY": key}
    return RequestFactory().generic(method, "/", b"", **extra)


def over_asgi(*lines: bytes) -> HttpRequest:
    """Make a request with several header lines of the key, as an ASGI server passes them on."""
    headers = [(HEADER.lower().encode(), line) for line in lines]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    return ASGIRequest(scope, BytesIO())


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_key_is_refused(raw: str) -> None:
    """A malformed key is never read as another key, and never truncated to fit."""
    with pytest.raises(KeyMalformed):
        plan_of(ANY_POLICY).read_key(posted(raw).META)


@pytest.mark.parametrize(("raw", "key"), WELL_FORMED.items())
def test_a_well_formed_key_is_read(raw: str, key: str) -> None:
    """A key may be bare, or a structured field's string with its two escapes."""
    assert plan_of(ANY_POLICY).read_key(posted(raw).META) == key


def test_two_lines_of_the_header_are_refused_over_asgi() -> None:
    """Either of them could be meant, quoted or bare; one line is fine."""
    assert plan_of(ANY_POLICY).read_key(over_asgi(b"a").META) == "a"
    for lines in ([b"a", b"b"], [b"a", b"a"], [b'"a"', b'"b"'], [b'"a"', b"b"], [b"a", b""]):
        with pytest.raises(KeyMalformed):
            plan_of(ANY_POLICY).read_key(over_asgi(*lines).META)


def test_bytes_beyond_ascii_are_refused_over_asgi() -> None:
    """A header is bytes: any bytes beyond ASCII get 400."""
    with pytest.raises(KeyMalformed):
        plan_of(ANY_POLICY).read_key(over_asgi(b"\xff\xfe").META)


def test_a_key_that_is_not_text_is_its_text() -> None:
    """A test client, or a middleware, may set a UUID."""
    assert (
        plan_of(ANY_POLICY).read_key(
            RequestFactory().post("/", HTTP_IDEMPOTENCY_KEY=uuid.UUID(UUID)).META
        )
        == UUID
    )


def test_without_the_header_there_is_no_key() -> None:
    """A request without the header has no key, which is not an error."""
    assert plan_of(ANY_POLICY).read_key(posted().META) is None
    assert not plan_of(ANY_POLICY).carries_key(posted().META)
    assert plan_of(ANY_POLICY).carries_key(posted("").META)  # but an empty header is one


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE"])
def test_a_safe_method_ignores_the_header(method: str) -> None:
    """A safe method ignores even a malformed key, and passes even where one is required."""
    assert guarding_key(posted("", method=method), Policy(required=True)) is None


@pytest.mark.parametrize("key", [UUID, ""])
def test_a_method_outside_the_policy_ignores_the_header(key: str) -> None:
    """As with a safe method, nothing is guarded, so nothing is refused."""
    policy = Policy(methods=("POST",), required=True)
    assert guarding_key(posted(key, method="DELETE"), policy) is None
    assert guarding_key(posted(None, method="DELETE"), policy) is None
    assert guarding_key(posted(UUID), policy) == UUID


def test_methods_may_be_written_in_lower_case() -> None:
    """People write policies."""
    assert guarding_key(posted(UUID, method="PATCH"), Policy(methods=["patch"])) == UUID


def test_a_required_key_must_be_there() -> None:
    """A missing key is 400 where it is required. Elsewhere the request runs unguarded."""
    with pytest.raises(KeyMissing):
        guarding_key(posted(), Policy(required=True))
    assert guarding_key(posted(), Policy(required=False)) is None


@pytest.mark.parametrize("name", ["X-Request-Token", "x-request-token"])
def test_the_name_of_the_header_is_configurable(name: str) -> None:
    """`HEADER` is read live, in any case; the usual name then has no effect."""
    with override_settings(IDEMPOTENCY={"HEADER": name}):
        assert (
            guarding_key(RequestFactory().post("/", headers={"X-Request-Token": "a"}), Policy())
            == "a"
        )
        assert guarding_key(posted("a,b"), Policy()) is None
        with pytest.raises(KeyMalformed):
            guarding_key(RequestFactory().post("/", headers={"X-Request-Token": "a,b"}), Policy())
