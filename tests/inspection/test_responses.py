"""A stored response as people see it. No database."""

from __future__ import annotations

import pytest

from django_idempotency.core.records import MISSING, Outcome, OutcomeKind
from django_idempotency.inspection import responses

RESULT = OutcomeKind.RESULT.headers[0][1]
BODIES = [
    # content type, body → kind, what is shown, what must not be
    ("application/json", b'{"token": "abc", "n": [1, 2.50]}', "json", "2.50", "abc"),
    ("application/problem+json; charset=utf-8", '{"title": "é"}'.encode(), "json", "é", ""),
    # Cut off: not JSON.
    (
        "application/json",
        b'{"password": "my pass',
        "text",
        "redacted",
        "my pass",
    ),
    ("application/json", b"[" * 100_000, "text", "[[[", ""),  # too deep for the parser
    ("text/html", b"<b>hi</b>", "text", "<b>hi</b>", ""),
    ("text/plain; charset=latin-1", "é".encode("latin-1"), "text", "é", ""),
    ("text/plain; charset=no-such", b"ok", "text", "ok", ""),
    ("text/csv", b"a,b\n\xff", "text", "a,b", ""),
    # One of Python's charsets, which refuses everything.
    (
        "text/plain; charset=undefined",
        b"ok",
        "text",
        "ok",
        "",
    ),
    ("text/plain; charset=unicode-escape", rb"a\ud800", "text", r"a\ud800", ""),
    ("image/png", b"\x89PNG", "image", "", ""),
    ("IMAGE/JPEG", b"\xff\xd8", "image", "", ""),
    # As text: a document may run scripts.
    (
        "image/svg+xml",
        b"<svg onload='alert(1)'/>",
        "text",
        "<svg",
        "",
    ),
    ("image/avif", b"\x00", "binary", "", ""),
    ("application/pdf", b"%PDF", "binary", "", ""),
    ("", b"?", "binary", "", ""),
    ("nonsense", b"<b>", "text", "<b>", ""),  # RFC 2045: an unreadable type is text/plain
    (RESULT, b'1:{"token": "abc", "n": 1.50}', "json", "1.50", "abc"),
    (RESULT, b"not of ours", "text", "not of ours", ""),
    ("application/json", b"", "empty", "", ""),
    ("application/json", None, "absent", "", ""),
]


class TestResponses:
    @pytest.mark.parametrize(("content_type", "body", "kind", "shown", "hidden"), BODIES)
    def test_kinds(
        self, content_type: str, body: bytes | None, kind: str, shown: str, hidden: str
    ) -> None:
        response = responses.shown(stored(body, {"Content-Type": content_type}), body_allowed=True)
        assert response is not None
        assert response.kind == kind
        assert shown in response.text
        assert not hidden or hidden not in response.text
        assert bool(response.source) == (kind == "image")

    def test_without_permission(self) -> None:
        """Without the permission, type and size are shown, and not a byte of the body."""
        response = responses.shown(
            stored(b'{"a": 1}', {"Content-Type": "application/json"}), body_allowed=False
        )
        assert response is not None
        assert (response.kind, response.size, response.content_type) == (
            "hidden",
            8,
            "application/json",
        )
        assert response.text == response.source == ""

    def test_compressed(self) -> None:
        import gzip
        import zlib

        for encoding, body in [
            ("gzip", gzip.compress(b'{"a": 1}')),
            ("deflate", zlib.compress(b'{"a": 1}')),
        ]:
            headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
            response = responses.shown(stored(body, headers), body_allowed=True)
            assert response is not None
            assert response.text == '{\n  "a": 1\n}'

    @pytest.mark.parametrize("body", [b"no gzip", b""])
    def test_a_body_that_contradicts_its_encoding(self, body: bytes) -> None:
        headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
        response = responses.shown(stored(body, headers), body_allowed=True)
        assert response is not None
        assert response.kind == ("binary" if body else "empty")

    def test_a_bomb_is_not_unpacked(self) -> None:
        import gzip

        headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
        response = responses.shown(
            stored(gzip.compress(b"0" * (1 << 24)), headers), body_allowed=True
        )
        assert response is not None
        assert response.kind == "binary"

    def test_long_text_is_cut_after_it_was_masked(self) -> None:
        body = b"x" * (responses.MAX_TEXT - 30) + b' "password": "' + b"secret" * 10 + b'"'
        response = responses.shown(stored(body, {"Content-Type": "text/plain"}), body_allowed=True)
        assert response is not None
        assert response.cut == (
            len(body) > responses.MAX_TEXT and len(response.text) == responses.MAX_TEXT
        )
        assert "secretsecret" not in response.text

    def test_there_is_none(self) -> None:
        assert responses.shown(None, body_allowed=True) is None


def stored(body: bytes | None, headers: dict[str, str]) -> Outcome:
    return Outcome(
        status=200, headers=tuple(headers.items()), body=MISSING if body is None else body
    )
