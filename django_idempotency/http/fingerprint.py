"""What makes a request the same request: method, path, query, content type and the body by its meaning.

Nothing is read that the view would not read, and all of it is there again for the view: forms are parsed by Django
(or by DRF's parsers), uploaded files are rewound, a long body is spooled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest
from django.http.request import RawPostDataException

from ..core.digest import canonical_json, framed, request_digest
from ..core.policy import Policy

CHUNK = 64 * 1024
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def fingerprint(request: Any, policy: Policy) -> bytes:
    """Return the 32 bytes of a request's digest. `request` is Django's, or DRF's around it.

    Raises what reading the body raises in a view: `RequestDataTooBig`, `UnreadablePostError`, a parser's error.
    """
    http: HttpRequest = getattr(request, "_request", request)
    content_type = (http.content_type or "").lower()
    parts = [str(http.method), http.path, http.META.get("QUERY_STRING", ""), content_type]
    head = framed(part.encode("utf-8", "surrogateescape") for part in parts)
    if callable(policy.fingerprint):
        value = policy.fingerprint(request)
        return request_digest(head, b"custom", value.encode() if isinstance(value, str) else bytes(value))
    if policy.fingerprint == "headers":
        return request_digest(head, b"headers")
    if policy.fingerprint == "raw":
        return request_digest(head, *_raw_or_form(request, http))
    if content_type in FORMS and (http.method == "POST" or request is not http):
        return request_digest(head, b"form", _form(request))
    if _is_json(content_type) and _fits(http):
        canonical = canonical_json(http.body)
        if canonical is not None:
            return request_digest(head, b"json", canonical)
    return request_digest(head, *_raw_or_form(request, http))


def _is_json(content_type: str) -> bool:
    return content_type == "application/json" or content_type.endswith("+json")


def _raw_or_form(request: Any, http: HttpRequest) -> tuple[bytes, bytes]:
    try:
        return b"bytes", _hash(_body(http))
    except RawPostDataException:  # the CSRF check has parsed the form: its bytes are gone, its parts are there
        return b"form", _form(request)


def _hash(chunks: Iterator[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def _form(request: Any) -> bytes:
    fields = sorted((name, values) for name, values in request.POST.lists())
    files = sorted(request.FILES.lists(), key=lambda pair: str(pair[0]))
    return framed(
        [
            *(framed([name.encode(), *(str(value).encode() for value in values)]) for name, values in fields),
            b"files",
            *(framed([name.encode(), *map(_file, uploads)]) for name, uploads in files),
        ]
    )


def _file(upload: UploadedFile[Any]) -> bytes:
    content = _hash(iter(upload.chunks()))
    upload.seek(0)
    return framed([(upload.name or "").encode(), (upload.content_type or "").encode(), content])


def _fits(http: HttpRequest) -> bool:
    """May `http.body` be read, by Django's own limit?"""
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return hasattr(http, "_body") or limit is None or _length(http) <= limit


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
    copy = SpooledTemporaryFile(max_size=settings.FILE_UPLOAD_MAX_MEMORY_SIZE)  # noqa: SIM115 - the request closes it
    while chunk := http.read(CHUNK):
        copy.write(chunk)
        yield chunk
    copy.seek(0)
    http._stream = copy  # type: ignore[assignment]  # noqa: SLF001
    http._read_started = False  # type: ignore[attr-defined]  # noqa: SLF001
