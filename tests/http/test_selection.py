"""What an expression sees of a request, what is read for it, and what happens when it cannot be
applied.
"""

from __future__ import annotations

import hashlib
import json
import logging
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import RequestFactory
from jmespath.functions import signature
from pytest_django import Settings

from django_idempotency import Policy
from django_idempotency.conf import resolve
from django_idempotency.core.expressions import Expression, Functions
from django_idempotency.errors import ConfigurationError, KeyMissing
from django_idempotency.http.admission import compile_expressions, fingerprint
from django_idempotency.http.selection import (
    MAX_SELECTABLE,
    Document,
    compiled,
    selected_key,
)
from django_idempotency.http.unguarded import report_unguarded

JSON = "application/json"


def request(
    body: Any = b"", content_type: str = JSON, *, path: str = "/orders/", **extra: Any
) -> HttpRequest:
    raw = body if isinstance(body, (bytes, str)) else json.dumps(body)
    return RequestFactory().generic(
        extra.pop("method", "POST"), path, raw, content_type=content_type, **extra
    )


def select(expression: str, sent: HttpRequest, user: Any = None) -> Any:
    return compiled(expression)(Document(sent, user))


def key(expression: Any, sent: HttpRequest, *, required: bool = False) -> str | None:
    return selected_key(
        Document(sent, None), resolve(Policy(key=expression, required=required)), ""
    )


def digest(expression: Any, sent: HttpRequest) -> bytes:
    return fingerprint(sent, resolve(Policy(fingerprint=expression)))


class Mine(Functions):
    """A project's own functions."""

    @signature({"types": ["string"]})
    def _func_small(self, text: str) -> str:
        return text.lower()


def test_a_selector_with_functions_of_its_own() -> None:
    """A selector sees the same document as an expression does, as a key and as a fingerprint."""
    small = Expression("small(body.name)", functions=Mine)
    sent, again, other = (request({"name": name, "amount": 5}) for name in ("TEA", "tea", "milk"))
    assert (
        key(small, sent)
        == key(small, again)
        == key(Expression("body.name"), again)
        != key(small, other)
    )
    assert digest(small, sent) == digest(small, again) != digest(small, other)
    compile_expressions(Policy(key=small))
    with pytest.raises(ValueError, match="asks for 'name'"):
        compile_expressions(Policy(key=Expression("small(name)", functions=Mine)))


USER = SimpleNamespace(is_authenticated=True, pk=7, tenant_id="t")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("body.amount", Decimal("12.50")),
        ("body.count", 3),
        ('headers."x-order"', "o-1"),
        ('headers."X-Order"', None),  # lower case only
        ("query.a", "1"),
        ("query.b", ["2", "3"]),
        ("query.c", None),
        ("path", "/orders/"),
        ("method", "POST"),
        ("user.tenant_id", "t"),
        ("user.pk", 7),
        ("keys(@)", ["body", "headers", "method", "path", "query", "user"]),
        ("@.path", "/orders/"),
    ],
)
def test_the_document(expression: str, expected: Any) -> None:
    """The document has six names, and values of Python's own types."""
    sent = request(
        b'{"amount": 12.50, "count": 3}', path="/orders/?a=1&b=2&b=3", headers={"X-Order": "o-1"}
    )
    assert select(expression, sent, USER) == expected


def test_an_anonymous_user_is_not_a_user() -> None:
    """Django's AnonymousUser is absent, not a value that all anonymous callers share."""
    assert select("user", request(), SimpleNamespace(is_authenticated=False, pk=None)) is None
    assert select("user.pk", request()) is None


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (
            "a=1&b=2&b=3&csrfmiddlewaretoken=x",
            "application/x-www-form-urlencoded",
            {"a": "1", "b": ["2", "3"]},
        ),
        ('{"a": 1}', "application/vnd.api+json; charset=utf-8", {"a": 1}),
        ("[1, null]", JSON, [1, None]),
        ("null", JSON, None),
        ('{"a": 1, "a": 2}', JSON, {"a": 2}),  # as the view's json.loads() returns it
        ("a=1", "text/plain", None),
        ('{"a": 1}', "text/plain", None),
        ("{", JSON, None),
        ('{"a": NaN}', JSON, None),
        (b'{"a": "\xff"}', JSON, None),
        ("", JSON, None),
    ],
    ids=str,
)
def test_bodies(body: Any, content_type: str, expected: Any) -> None:
    """JSON and forms are there by value; any other body is absent."""
    assert select("body", request(body, content_type)) == expected


@pytest.mark.parametrize(("longer", "there"), [(0, True), (1, False)])
def test_a_long_body_is_absent(longer: int, there: bool) -> None:
    """Parsing costs forty times the hash."""
    sent = request('{"a":"%s"}' % ("x" * (MAX_SELECTABLE - 8 + longer)))
    assert (select("body.a", sent) is not None) is there


def test_a_body_beyond_djangos_limit_is_absent(settings: Settings) -> None:
    """It is not read into memory; the view may stream it."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    sent = request({"order_id": "o-1"})
    assert select("body.order_id", sent) is None
    assert not sent._read_started  # type: ignore[attr-defined]


@pytest.mark.parametrize("expression", ['headers."x-order"', "[path, method]", "query.a", "user"])
def test_only_what_is_asked_for_is_read(expression: str) -> None:
    """A view that streams its upload continues to do so."""
    sent = request(b"x" * 100, "multipart/form-data; boundary=b", headers={"X-Order": "1"})
    select(expression, sent)
    assert not sent._read_started  # type: ignore[attr-defined]


def test_the_body_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is parsed once for all parts, and for key and fingerprint together."""
    parsed: list[Document] = []
    real = Document._parsed

    def noted(self: Document) -> Any:
        parsed.append(self)
        return real(self)

    monkeypatch.setattr(Document, "_parsed", noted)
    sent = request({"a": 1, "b": 2})
    document, terms = (
        Document(sent, None),
        resolve(Policy(key="[body.a, body.b]", fingerprint="body.a")),
    )
    assert selected_key(document, terms, "")
    assert fingerprint(sent, terms, None, document)
    assert len(parsed) == 1


def test_a_body_that_is_gone_is_reported() -> None:
    """A middleware that reads the stream leaves nothing to select from: every key would be
    missing.
    """
    sent = request({"order_id": 1})
    sent.read(3)
    with pytest.raises(
        ConfigurationError, match="was already read before idempotency could read it"
    ):
        select("body.order_id", sent)


# ------------------------------------------------------------------------------------------ the key


def test_golden_keys() -> None:
    """The next release must find the keys that an earlier one has stored."""
    sent = request({"shop": 7, "order_id": "o-1", "amount": 12.5})
    assert (
        key("body.[shop, order_id]", sent)
        == "sel:0524c4d103afae68c31792339007ab9b53229cce35f74a7cf109ba28747a8ac4"
    )
    assert (
        hashlib.sha256(b"[s4:POSTs8:/orders/[i7;s3:o-1]]").hexdigest()
        == "0524c4d103afae68c31792339007ab9b53229cce35f74a7cf109ba28747a8ac4"
    )


def test_method_and_path_count_and_the_query_does_not() -> None:
    """Two routes never meet."""
    keys = [
        key("body.a", request({"a": 1}, **{"path": "/orders/", "method": "POST", **other}))
        for other in ({}, {"path": "/refunds/"}, {"method": "PUT"}, {"path": "/orders/?b=1"})
    ]
    assert len(set(keys)) == 3
    assert keys[0] == keys[3]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            {"payload": "{"},
            "'from_json(body.payload).id' cannot be applied: from_json() got what is not JSON",
        ),
        (
            {"payload": 5},
            (
                "'from_json(body.payload).id' cannot be applied: from_json() takes string or "
                "null, not number"
            ),
        ),
        ({}, "all or part of what its key is selected from is missing"),
        (
            {"payload": '{"id":' + "[" * 200 + "]" * 200 + "}"},
            "the data that its key is selected from is nested too deep",
        ),
    ],
    ids=["no JSON", "no text", "absent", "deep"],
)
def test_a_key_that_cannot_be_selected_is_missing(
    body: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The payload is the client's: 400 where a key is required, otherwise a warning that does not
    show it.
    """
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        sent = request(body)
        assert key("from_json(body.payload).id", sent) is None
        report_unguarded(sent)
    assert [record.getMessage() for record in caplog.records] == [
        f"POST /orders/ runs unguarded: {reason}."
    ]
    with pytest.raises(KeyMissing):
        key("from_json(body.payload).id", request(body), required=True)


def test_a_path_forges_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The path is percent-encoded in the log."""
    sent = request({})
    sent.path = "/a\nWARNING b"
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        assert key("body.id", sent) is None
        report_unguarded(sent)
    assert "\n" not in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("value", "missing"), [(None, True), ("", True), ((1, None), True), (0, False), ((0,), False)]
)
def test_a_function_may_say_that_there_is_none(value: Any, missing: bool) -> None:
    """A function's values count as missing by the same rules as those of an expression."""
    assert (key(lambda request: value, request()) is None) is missing


# ---------------------------------------------------------------------------------- the fingerprint


def test_exactly_what_is_selected_is_compared() -> None:
    """Method and path are compared too; query and content type only if selected."""
    first = digest("body.amount", request({"amount": 1, "at": 1}))
    assert (
        digest("body.amount", request({"at": 2, "amount": 1}, "text/x+json", path="/orders/?b=1"))
        == first
    )
    for other in (
        request({"amount": 2}),
        request({"amount": "1"}),
        request({"amount": None}),
        request({"amount": 1}, path="/refunds/"),
        request({"amount": 1}, method="PUT"),
    ):
        assert digest("body.amount", other) != first
    assert digest("[body.amount, query.b]", request({"amount": 1}, path="/?b=1")) != digest(
        "[body.amount, query.b]", request({"amount": 1}, path="/?b=2")
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (request("{1", JSON), request("{2", JSON)),  # not JSON
        (request("1", "text/plain"), request("2", "text/plain")),
        (
            request('{"a":"%s1"}' % ("x" * MAX_SELECTABLE)),
            request('{"a":"%s2"}' % ("x" * MAX_SELECTABLE)),
        ),
        (request({"amount": "{1"}), request({"amount": "{2"})),  # no JSON inside
        (
            request({"amount": "[" * 200 + "1" + "]" * 200}),
            request({"amount": "[" * 200 + "2" + "]" * 200}),
        ),
    ],
    ids=["no JSON", "text", "long", "inside", "deep"],
)
def test_what_cannot_be_selected_from_is_compared_whole(
    one: HttpRequest, other: HttpRequest
) -> None:
    """Otherwise all of them would be the same request."""
    assert digest("from_json(body.amount)", one) == digest("from_json(body.amount)", one)
    assert digest("from_json(body.amount)", one) != digest("from_json(body.amount)", other)


# ------------------------------------------------------------------------------------- declarations


def test_wrong_expressions_name_their_field() -> None:
    """The error comes at the declaration."""
    with pytest.raises(
        ValueError,
        match=r"^Policy\(key='body\.\['\): 'body\.\[' is not a JMESPath expression: it ends",
    ):
        compile_expressions(Policy(key="body.["))
    with pytest.raises(
        ValueError,
        match=r"'a\.b' asks for 'a', but a request has body, .*\. Type 'body\.a' instead",
    ):
        compile_expressions(Policy(fingerprint="a.b"))
    compile_expressions(Policy(key=str, fingerprint="raw"))


def test_a_wrong_expression_of_a_request_is_the_projects_mistake() -> None:
    """A policy from get_idempotency_policy() is compiled when it is used."""
    with pytest.raises(ConfigurationError, match="it ends too early"):
        key("body.[", request())
    with pytest.raises(ConfigurationError, match="it ends too early"):
        digest("body.[", request())


def test_settings_tell_an_expression_from_a_dotted_path(settings: Settings) -> None:
    """The name that it begins with decides."""

    def given() -> dict[str, Any]:
        return {name: getattr(resolve(Policy()), name) for name in ("key", "fingerprint")}

    settings.IDEMPOTENCY = {"KEY": "body.id", "FINGERPRINT": "[query.a, body.b]"}
    assert given() == {"key": "body.id", "fingerprint": "[query.a, body.b]"}
    settings.IDEMPOTENCY = {"KEY": "builtins.str", "FINGERPRINT": "builtins.repr"}
    assert given() == {"key": str, "fingerprint": repr}
