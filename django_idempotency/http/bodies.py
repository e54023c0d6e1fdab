"""Reads a request's body before its view does, refuses one that is cut short, and compares it by
its meaning.

The view can read everything again: forms are parsed by Django (or by DRF's parsers), uploaded files
are rewound, a long body is spooled to disk. The policy limits how much is read to be compared
(`max_request_body`), and `IN_MEMORY` how much of it is held in memory.

Where a client's network dies in the middle of an upload, a WSGI server gives Django the bytes that
came, as though they were all. `receive()` asks how many were announced, so half a request is never
taken for a request.

Django and REST framework offer no public way to ask whether a body was read, or to put it back:
their private names are used in the last part only, and a test fails when a new version changes one
of them.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import SEEK_END, BytesIO
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import Any

from django.conf import settings
from django.core.exceptions import BadRequest, SuspiciousOperation
from django.core.files.uploadedfile import UploadedFile
from django.core.handlers.wsgi import LimitedStream
from django.http import HttpRequest, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.http.request import RawPostDataException
from django.utils.datastructures import MultiValueDict

from ..core.concurrency import nothing
from ..core.hashing import canonical_json, framed
from ..core.policy import Resolved
from ..errors import BodyIncomplete, ConfigurationError, RequestTooLarge

CHUNK = 64 * 1024
#: The longest body that is held in memory (bytes). A longer one is spooled to disk.
IN_MEMORY = 1024 * 1024
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
#: Django masks the token differently for each page, so it does not identify the request.
CSRF_FIELD = "csrfmiddlewaretoken"

_GONE = (
    "The body was already read before idempotency could read it. Read it in the view only, or type "
    'fingerprint="headers" or a function of the request, and select no key from the body.'
)


def read_as(request: Any, http: HttpRequest, policy: Resolved) -> tuple[bytes, bytes]:
    """Return how a body that has been received is compared, and what of it."""
    content_type = (http.content_type or "").lower()
    by_value = policy.fingerprint != "raw"
    if by_value and content_type in FORMS and is_parsed_as_form(request, http):
        fields = form_fields(request, http)
        if fields is not None:
            return b"form", _form(request, fields, _ignored(policy))
    try:
        if (
            by_value
            and hasattr(http, "_body")
            # A retry may have another content type.
            and (is_json(content_type) or policy.profile.compares == "body")
        ):
            canonical = canonical_json(http.body)
            if canonical is not None:
                return b"json", canonical
        return b"bytes", _hash(chunks(http))
    except RawPostDataException:  # the CSRF check has parsed a form, or a DRF permission the data
        return b"parsed", _form(request, read_already(request, http), _ignored(policy))


def _ignored(policy: Resolved) -> frozenset[str]:
    """Return the fields of a form that do not identify the request: the CSRF token, and a key that
    is one of them.
    """
    if policy.profile.carrier == "body":
        return frozenset({CSRF_FIELD, policy.profile.field})
    return frozenset({CSRF_FIELD})


def _text(value: Any) -> bytes:
    # A client's charset may decode to lone surrogates.
    return str(value).encode("utf-8", "surrogatepass")


#: Precedes parsed values that are not text: UTF-8 does not have this byte, so `1` is not `"1"`.
_NO_TEXT = b"\xff"


def _hash(chunks: Iterator[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def _form(request: Any, fields: Any, ignored: frozenset[str]) -> bytes:
    return framed([*_pairs(fields, ignored), b"files", *_pairs(request.FILES, ignored)])


def _pairs(data: Any, ignored: frozenset[str]) -> Iterator[bytes]:
    """Yield each name with its values. A project's parser may return anything, not only pairs."""
    if isinstance(data, MultiValueDict):
        pairs = list(data.lists())
    elif isinstance(data, dict):
        pairs = [(str(name), [value]) for name, value in data.items()]
    else:
        yield _NO_TEXT + _value(data)
        return
    for name, values in sorted(pairs, key=lambda pair: pair[0]):
        if name not in ignored:
            yield framed([_text(name), *map(_value, values)])


def _value(value: Any) -> bytes:
    if isinstance(value, UploadedFile):
        content = _hash(iter(value.chunks()))
        value.seek(0)
        return framed([_text(value.name or ""), _text(value.content_type or ""), content])
    if isinstance(value, str):
        return _text(value)
    try:
        return _NO_TEXT + _text(json.dumps(value, sort_keys=True, default=_nested))
    except (TypeError, ValueError, RecursionError):  # names of several types, a circle
        return _NO_TEXT + _text(repr(value))


def _nested(value: Any) -> str:
    """Return a substitute for what JSON cannot express; a file among the fields counts by its
    content.
    """
    return _value(value).hex() if isinstance(value, UploadedFile) else repr(value)


# ----------------------------------------------------------------------------- how its body is read


def is_json(content_type: str) -> bool:
    return content_type == "application/json" or content_type.endswith("+json")


def is_parsed_as_form(request: Any, http: HttpRequest) -> bool:
    """Would the view find a form?

    Django parses those of POST, DRF those that one of the view's parsers takes.
    """
    if request is http:
        return bool(http.method == "POST")
    parser: object = request.negotiator.select_parser(request, request.parsers)
    return parser is not None


def form_fields(request: Any, http: HttpRequest) -> Any:
    """Return a form's fields, as the view will see them; `None` for one that cannot be parsed, or
    not in memory.

    The body can be read again after that, as bytes or as a stream, and a view that asks for a
    broken form gets the parser's error. Raises `ConfigurationError` when the body is gone, and what
    a parser or an upload handler raises for another reason than the body (a full disk, a client
    that hung up): the work has not begun, and a retry may fare better.
    """
    rewind: Callable[[], None] = nothing
    if not is_form_parsed(http):
        if request is http and is_read(http) and not is_in_memory(http):
            # Django would return an empty form: all forms would be equal.
            raise ConfigurationError(_GONE)
        if http.content_type == FORMS[0] and not fits(http):
            return None  # Django would read all of it into memory
        rewind = _rewindable(http)
    try:
        fields = request.POST
    except Exception as error:
        _forget(request, http)
        rewind()
        if not _is_of_the_body(error):
            raise
        return None
    rewind()
    return fields


def _is_of_the_body(error: Exception) -> bool:
    """Would the same body fail again with this error?"""
    if isinstance(error, (MultiPartParserError, BadRequest, SuspiciousOperation, ValueError)):
        return True
    status = getattr(error, "status_code", 500)  # an exception of REST framework's
    return isinstance(status, int) and status < 500


def _rewindable(http: HttpRequest) -> Callable[[], None]:
    """Make a body readable again after it is parsed. Returns the function to call then."""
    if is_read(http):
        return nothing
    _read(http)
    return nothing if is_in_memory(http) else lambda: _put_back(http)


def read_already(request: Any, http: HttpRequest) -> Any:
    """Return the parsed data of a body whose bytes are gone, as the view will see it.

    Raises `ConfigurationError` if there is none.
    """
    if request is not http:
        return request.data
    if (http.content_type or "").lower() in FORMS:
        return form_fields(request, http)
    raise ConfigurationError(_GONE)


def chunks(http: HttpRequest) -> Iterator[bytes]:
    """Yield a body, however long. Raises `RawPostDataException` when it is gone."""
    if fits(http):
        yield http.body
        return
    if is_read(http):
        raise RawPostDataException
    _read(http)
    while chunk := http.read(CHUNK):
        yield chunk
    _put_back(http)


# ------------------------------------------------------------------------------- is all of it here?

#: On a request whose body we have read or judged: is it shorter than announced?
_CUT = "_idempotency_body_cut"


def receive(request: Any, *, reads: bool = True) -> None:
    """Read a body that nobody has read, into memory or into a file.

    Raises `BodyIncomplete` if a part of it is missing.

    `request` is Django's, or DRF's around it. Not `reads`: nothing is read, and only what is known
    already counts.
    """
    http: HttpRequest = getattr(request, "_request", request)
    known = vars(http)
    if _CUT not in known and "_stream" in known:  # a request that no server made has none
        if http._read_started:  # type: ignore[attr-defined]  # noqa: SLF001
            known[_CUT] = _was_cut(http, is_parsed=request is not http or is_form_parsed(http))
        elif reads:
            _read(http, only_to_judge=True)
    if known.get(_CUT):
        raise BodyIncomplete


def _read(http: HttpRequest, *, only_to_judge: bool = False, spools: bool = True) -> None:
    """Read all of a body that nobody has read, and note whether it was cut short.

    It can be read again after that.

    `only_to_judge`: not where its length was not announced. Not `spools`: only a short one.
    """
    announced = _announced(http._stream, http)  # noqa: SLF001
    is_short = fits(http)
    if _CUT in vars(http) or (only_to_judge and announced <= 0) or not (is_short or spools):
        return
    cut = True
    with suppress(UnreadablePostError):  # so some servers say that the client has gone
        cut = (len(http.body) if is_short else _spool(http)) < announced
    vars(http)[_CUT] = cut


# ------------------------------------------------------------------------------ what was read of it


def is_read(http: HttpRequest) -> bool:
    """Has any of the body been read as a stream?

    Django sets it for `body` and for a parsed form, too.
    """
    return bool(http._read_started)  # type: ignore[attr-defined]  # noqa: SLF001


def is_in_memory(http: HttpRequest) -> bool:
    """Does the request hold its `body`? To ask for that would read it."""
    return hasattr(http, "_body")


def is_form_parsed(http: HttpRequest) -> bool:
    """Does the request hold its `POST`? To ask for that would parse it."""
    return hasattr(http, "_post")


def keep(http: HttpRequest) -> None:
    """Hold the bytes of a short JSON body before anything parses it, so that it can be compared by
    value after that.
    """
    is_fresh = not http._read_started  # type: ignore[attr-defined]  # noqa: SLF001
    if is_fresh and is_json((http.content_type or "").lower()):
        _read(http, spools=False)


def require_bounded(http: HttpRequest, limit: int | None) -> None:
    """Raise `RequestTooLarge` for a body of more than `limit` bytes, before any of it is read.

    `None`: no limit.
    """
    if (
        limit is not None
        and (len(http.body) if hasattr(http, "_body") else _received(http)) > limit
    ):
        raise RequestTooLarge(extensions={"max_request_body": limit})


def fits(http: HttpRequest) -> bool:
    """May `http.body` be read into memory, by Django's own limit and by ours?"""
    if hasattr(http, "_body"):
        return True
    limit: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return _received(http) <= (IN_MEMORY if limit is None else min(limit, IN_MEMORY))


def _received(http: HttpRequest) -> int:
    """Return the length of a body, as its client has declared it, or as far as the server has
    received it already.

    On ASGI, chunks come without a Content-Length.
    """
    stream: Any = getattr(http, "_stream", None)  # of a request that no server made there is none
    if isinstance(stream, LimitedStream):
        return int(stream.limit)
    return max(_declared(http), _buffered(stream) or 0)


def _declared(http: HttpRequest) -> int:
    """Return the Content-Length of a request; 0: it has none."""
    try:
        return int(http.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return 0


def _buffered(stream: Any) -> int | None:
    """Return the length of a stream that is in memory or in a file; `None`: it is not, or it is
    closed.
    """
    try:
        here = stream.tell()
        stream.seek(0, SEEK_END)
        length: int = stream.tell()
        stream.seek(here)
    except (AttributeError, OSError, ValueError):
        return None
    return length


def _announced(stream: Any, http: HttpRequest) -> int:
    """Return how many bytes a stream that nobody has read shall have; 0: none, or nobody knows.

    That is so where a middleware has put a stream of its own there. On ASGI, Django has read them
    into a file.
    """
    if isinstance(stream, LimitedStream):
        return int(stream.limit)
    return _declared(http) if isinstance(stream, SpooledTemporaryFile) else 0


def _was_cut(http: HttpRequest, *, is_parsed: bool) -> bool:
    """Is a body that somebody else has read, in whole or in part, shorter than announced?

    `False` if that is unknown.

    A middleware may have replaced it by what it decompressed or decrypted. Its length is another
    one then, which the middleware says in CONTENT_LENGTH; or it has replaced only the bytes, or
    left the Content-Encoding.
    """
    stream: Any = http._stream  # noqa: SLF001
    if is_in_memory(http):
        is_short = len(http.body) < _declared(http)
        return is_short and "HTTP_CONTENT_ENCODING" not in http.META and _holds(stream, http.body)
    if isinstance(stream, SpooledTemporaryFile):
        length = _buffered(stream)
        return length is not None and length < _declared(http)
    if not is_parsed or not isinstance(stream, LimitedStream):
        return False  # what is left of it belongs to who reads it
    with suppress(OSError):
        while stream.read(CHUNK):
            pass  # a parser may leave what it does not need
    return bool(stream._pos < stream.limit)  # type: ignore[attr-defined]  # noqa: SLF001


def _holds(stream: Any, body: bytes) -> bool:
    """Is this the stream that Django leaves behind when it has read a body, with the same bytes?"""
    return isinstance(stream, BytesIO) and stream.getvalue() == body


def _spool(http: HttpRequest) -> int:
    """Put a copy on disk in the place of a body that is longer than what is held in memory.

    Returns its length.

    A view that asks for a `body` beyond Django's limit gets RequestDataTooBig as usual.
    """
    if isinstance(http._stream, SpooledTemporaryFile):  # noqa: SLF001 - on ASGI it is such a copy
        return _buffered(http._stream) or 0  # noqa: SLF001
    # Closed with the request.
    copy = TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115
    weakref.finalize(http, copy.close)
    length = 0
    while chunk := http.read(CHUNK):
        length += copy.write(chunk)
    http._stream = copy  # noqa: SLF001
    _put_back(http)
    return length


def _put_back(http: HttpRequest) -> None:
    """Let the request read its body from its file, as though none of it had been read."""
    http._stream.seek(0)  # noqa: SLF001
    http._read_started = False  # type: ignore[attr-defined]  # noqa: SLF001


def _forget(request: Any, http: HttpRequest) -> None:
    """Undo a failed parse, which leaves an empty form: the view gets the error, too."""
    if request is http:
        for name in ("_post", "_files"):
            vars(http).pop(name, None)
        return
    from rest_framework.request import Empty  # which such a request has loaded

    for name in ("_data", "_files", "_full_data", "_stream"):
        setattr(request, name, Empty)
