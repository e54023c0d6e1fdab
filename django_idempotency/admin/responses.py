"""A stored response as a page may show it: masked, decoded, and never as markup of its own."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from dataclasses import dataclass, field
from email.message import Message

from .. import redaction
from ..models import IdempotencyRecord

#: Images that a browser only paints. Never SVG: it is a document, and may run scripts.
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_IMAGE = 1 << 20
#: Characters shown of a text, after masking; bytes unpacked of a compressed one.
MAX_TEXT = 100_000
MAX_UNPACKED = 1 << 20
_TEXTS = frozenset({"application/xml", "application/x-www-form-urlencoded", "application/javascript"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownResponse:
    """What the page's template needs. `kind` chooses how the body is shown, or says why it is not."""

    status: int | None
    kind: str  # absent, empty, hidden, json, text, image, binary
    size: int = 0
    content_type: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    text: str = ""
    source: str = ""  # of an image
    cut: bool = False


def shown(row: IdempotencyRecord, *, body_allowed: bool) -> ShownResponse | None:
    """Prepare a row's response, or return `None` if it has none. Without the permission, no byte of the body."""
    if row.response_status is None:
        return None
    pairs = stored_headers(row)
    named = {name.lower(): value for name, value in pairs}
    content_type = named.get("content-type", "")
    body = None if row.response_body is None else bytes(row.response_body)
    kind, text, source = "hidden", "", ""
    if body is None:
        kind = "absent"
    elif not body:
        kind = "empty"
    elif body_allowed:
        kind, text, source = _body(body, content_type, named.get("content-encoding", ""))
    return ShownResponse(
        status=row.response_status,
        kind=kind,
        size=len(body or b""),
        content_type=content_type,
        headers=redaction.headers(pairs),
        text=text[:MAX_TEXT],
        source=source,
        cut=len(text) > MAX_TEXT,
    )


def stored_headers(row: IdempotencyRecord) -> list[tuple[str, str]]:
    """Read what the store wrote; a row that somebody else wrote shows none."""
    try:
        return [(str(name), str(value)) for name, value in json.loads(row.response_headers)]
    except (ValueError, TypeError):
        return []


def _body(body: bytes, content_type: str, encoding: str) -> tuple[str, str, str]:
    header = Message()
    header["Content-Type"] = content_type
    kind = header.get_content_type() if content_type else ""
    unpacked = _unpacked(body, encoding.strip().lower())
    if unpacked is None:
        return "binary", "", ""
    if kind in IMAGES and len(unpacked) <= MAX_IMAGE:
        return "image", "", f"data:{kind};base64,{b64encode(unpacked).decode()}"
    is_json = kind == "application/json" or kind.endswith("+json")
    if not (is_json or kind.startswith("text/") or kind in _TEXTS or kind.endswith("+xml")):
        return "binary", "", ""
    text = _decoded(unpacked, header.get_content_charset() or "utf-8")
    pretty = redaction.json_text(text) if is_json else None
    return ("json", pretty, "") if pretty is not None else ("text", redaction.text(text), "")


def _unpacked(body: bytes, encoding: str) -> bytes | None:
    """Undo gzip and deflate, as far as a page can show; `None` for what only a client can read."""
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        return None
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # recognises both
    try:
        unpacked = unpacker.decompress(body, MAX_UNPACKED)
    except zlib.error:
        return None
    return unpacked if unpacker.eof else None  # cut in the middle, a secret could not be recognised


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, errors="replace")
    except LookupError:
        return body.decode(errors="replace")
