"""What makes a request the same request: method, path, query, content type and the body by its meaning.

Nothing is read that the view would not read, and all of it is there again for the view: forms are parsed by Django
(or by DRF's parsers), uploaded files are rewound, a long body is spooled.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest
from django.http.request import RawPostDataException
from django.utils.datastructures import MultiValueDict

from ..core.digest import canonical_json, framed, request_digest
from ..core.policy import Policy
from ..errors import ConfigurationError

CHUNK = 64 * 1024
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
#: Django masks the token anew for each page, so it says nothing about the request.
CSRF_FIELD = "csrfmiddlewaretoken"

_GONE = (
    "The body was read before idempotency could compare it. Read it in the view only, or type "
    'fingerprint="headers" or a function of the request.'
)


def fingerprint(request: Any, policy: Policy) -> bytes:
    """Return the 32 bytes of a request's digest. `request` is Django's, or DRF's around it.

    Raises what reading the body raises in a view (`RequestDataTooBig`, `UnreadablePostError`, a parser's error), and
    `ConfigurationError` when somebody has read it already or `policy.fingerprint` returns what is no fingerprint.
    """
    http: HttpRequest = getattr(request, "_request", request)
    content_type = (http.content_type or "").lower()
    parts = [str(http.method), http.path, http.META.get("QUERY_STRING", ""), content_type]
    head = framed(map(_text, parts))
    if callable(policy.fingerprint):
        return request_digest(head, b"custom", _custom(policy.fingerprint(request)))
    if policy.fingerprint == "headers":
        return request_digest(head, b"headers")
    by_value = policy.fingerprint == "request"
    if by_value and content_type in FORMS and _is_parsed_as_form(request, http):
        return request_digest(head, b"form", _form(request, http))
    try:
        if by_value and _is_json(content_type) and _fits(http):
            canonical = canonical_json(http.body)
            if canonical is not None:
                return request_digest(head, b"json", canonical)
        return request_digest(head, b"bytes", _hash(_body(http)))
    except RawPostDataException:  # the CSRF check has parsed a form, or a DRF permission the data
        return request_digest(head, b"parsed", _parsed(request, http))


def _text(value: Any) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")  # a client's charset may decode to lone surrogates


def _custom(value: Any) -> bytes:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise ConfigurationError(f"Policy.fingerprint must return bytes or text, not {type(value).__name__}.")


def _is_json(content_type: str) -> bool:
    return content_type == "application/json" or content_type.endswith("+json")


def _is_parsed_as_form(request: Any, http: HttpRequest) -> bool:
    """Would the view find a form? Django parses those of POST, DRF those that one of the view's parsers takes."""
    if request is http:
        return bool(http.method == "POST")
    parser: object = request.negotiator.select_parser(request, request.parsers)
    return parser is not None


def _hash(chunks: Iterator[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def _parsed(request: Any, http: HttpRequest) -> bytes:
    """Return what there is of a body whose bytes are gone: what the view will see of it."""
    if request is not http:
        return framed([*_pairs(request.data), b"files", *_pairs(request.FILES)])
    if (http.content_type or "").lower() in FORMS:
        return _form(request, http)
    raise ConfigurationError(_GONE)


def _form(request: Any, http: HttpRequest) -> bytes:
    read: bool = http._read_started  # type: ignore[attr-defined]  # noqa: SLF001
    if request is http and read and not (hasattr(http, "_post") or hasattr(http, "_body")):
        raise ConfigurationError(_GONE)  # Django would say that the form is empty: every form would be the same
    return framed([*_pairs(request.POST), b"files", *_pairs(request.FILES)])


def _pairs(data: Any) -> Iterator[bytes]:
    """Yield each name with its values. A parser of the project's own may return anything, not only pairs."""
    if isinstance(data, MultiValueDict):
        pairs = list(data.lists())
    else:
        pairs = [(str(name), [value]) for name, value in (data.items() if isinstance(data, dict) else [("", data)])]
    for name, values in sorted(pairs, key=lambda pair: pair[0]):
        if name != CSRF_FIELD:
            yield framed([_text(name), *map(_value, values)])


def _value(value: Any) -> bytes:
    if isinstance(value, UploadedFile):
        content = _hash(iter(value.chunks()))
        value.seek(0)
        return framed([_text(value.name or ""), _text(value.content_type or ""), content])
    if isinstance(value, str):
        return _text(value)
    try:
        return _text(json.dumps(value, sort_keys=True, default=repr))
    except (TypeError, ValueError, RecursionError):  # names of several types, a circle
        return _text(repr(value))


def _fits(http: HttpRequest) -> bool:
    """May `http.body` be read, by Django's own limit?"""
    limit: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return limit is None or _length(http) <= limit or hasattr(http, "_body")


def _length(http: HttpRequest) -> int:
    try:
        return int(http.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return 0


def _body(http: HttpRequest) -> Iterator[bytes]:
    if _fits(http):
        yield http.body
        return
    if http._read_started:  # type: ignore[attr-defined]  # noqa: SLF001
        raise RawPostDataException
    # Longer than what Django would hold in memory, and perhaps never read as `body`: read it as the stream that it
    # is, and lay a copy in its place. A view that asks for `body` gets its RequestDataTooBig as ever.
    copy = SpooledTemporaryFile(settings.FILE_UPLOAD_MAX_MEMORY_SIZE, dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115 - closed with the request
    while chunk := http.read(CHUNK):
        copy.write(chunk)
        yield chunk
    copy.seek(0)
    weakref.finalize(http, copy.close)
    http._stream = copy  # type: ignore[assignment]  # noqa: SLF001
    http._read_started = False  # type: ignore[attr-defined]  # noqa: SLF001
