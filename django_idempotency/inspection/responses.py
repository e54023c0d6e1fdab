"""A stored response for display: masked, decoded, and never as markup."""

from __future__ import annotations

import zlib
from base64 import b64encode
from dataclasses import dataclass, field
from email.message import Message

from ..core.at_rest import is_sealed
from ..core.records import MISSING, Outcome, kind_of
from ..core.serialization.results import VERSION
from . import redaction

#: Images that a browser only paints. Never SVG: it is a document, which may run scripts.
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_IMAGE = 1 << 20
#: The most characters shown of a text, after masking; the most bytes unpacked of a compressed one.
MAX_TEXT = 100_000
MAX_UNPACKED = 1 << 20
_TEXTS = frozenset(
    {"application/xml", "application/x-www-form-urlencoded", "application/javascript"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownResponse:
    """A response as a page or a terminal shows it. `kind` is how the body is shown, or why it is
    not.
    """

    status: int
    kind: str  # absent, sealed, empty, hidden, json, text, image, binary
    size: int = 0
    content_type: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    text: str = ""
    source: str = ""  # of an image
    cut: bool = False


def shown(outcome: Outcome | None, *, body_allowed: bool) -> ShownResponse | None:
    """Prepare a record's response, or return `None` if it has none.

    Without permission, it has no byte of the body.
    """
    if outcome is None:
        return None
    if is_sealed(outcome):
        return ShownResponse(status=outcome.status, kind="sealed")
    named = {name.lower(): value for name, value in outcome.headers}
    content_type = named.get("content-type", "")
    body = None if outcome.body is MISSING else outcome.body
    kind = "hidden"
    text = ""
    source = ""
    if body is None:
        kind = "absent"
    elif not body:
        kind = "empty"
    elif body_allowed:
        if kind_of(outcome) is not None:  # the result of a function is JSON after a version
            body = body.removeprefix(VERSION)
        kind, text, source = _body(body, content_type, named.get("content-encoding", ""))
    return ShownResponse(
        status=outcome.status,
        kind=kind,
        size=len(body or b""),
        content_type=content_type,
        headers=redaction.headers(outcome.headers),
        text=text[:MAX_TEXT],
        source=source,
        cut=len(text) > MAX_TEXT,
    )


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
    """Undo gzip and deflate, up to what a page can show; `None` for other encodings."""
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
        text = body.decode(charset, errors="replace")
    except (LookupError, ValueError):  # no such charset, or one that cannot replace
        text = body.decode(errors="replace")
    return text.encode(errors="backslashreplace").decode()  # half a character cannot be sent
