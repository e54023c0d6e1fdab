"""Reading what a request carries, before its view does.

Nothing is read that the view would not read, and all of it is there again for the view: forms are parsed by Django
(or by DRF's parsers), uploaded files are rewound, a long body is spooled.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from io import SEEK_END
from tempfile import SpooledTemporaryFile
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.http.request import RawPostDataException

from ..errors import ConfigurationError

CHUNK = 64 * 1024
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
#: Django masks the token anew for each page, so it says nothing about the request.
CSRF_FIELD = "csrfmiddlewaretoken"

_GONE = (
    "The body was read before idempotency could look at it. Read it in the view only, or type "
    'fingerprint="headers" or a function of the request, and select no key from the body.'
)


def is_json(content_type: str) -> bool:
    return content_type == "application/json" or content_type.endswith("+json")


def is_parsed_as_form(request: Any, http: HttpRequest) -> bool:
    """Would the view find a form? Django parses those of POST, DRF those that one of the view's parsers takes."""
    if request is http:
        return bool(http.method == "POST")
    parser: object = request.negotiator.select_parser(request, request.parsers)
    return parser is not None


def form(request: Any, http: HttpRequest) -> Any:
    """Return a form's fields, as the view will see them. Raises `ConfigurationError` when they are gone."""
    read: bool = http._read_started  # type: ignore[attr-defined]  # noqa: SLF001
    if request is http and read and not (hasattr(http, "_post") or hasattr(http, "_body")):
        raise ConfigurationError(_GONE)  # Django would say that the form is empty: every form would be the same
    return request.POST


def read_already(request: Any, http: HttpRequest) -> Any:
    """Return what there is of a body whose bytes are gone: what the view will see of it.

    Raises `ConfigurationError` when that is nothing.
    """
    if request is not http:
        return request.data
    if (http.content_type or "").lower() in FORMS:
        return form(request, http)
    raise ConfigurationError(_GONE)


def fits(http: HttpRequest) -> bool:
    """May `http.body` be read, by Django's own limit?"""
    limit: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return limit is None or hasattr(http, "_body") or max(_length(http), _buffered(http)) <= limit


def _buffered(http: HttpRequest) -> int:
    """Return the length of what a server has taken in already: on ASGI, chunks that come without a Content-Length."""
    stream: Any = getattr(http, "_stream", None)
    try:
        here = stream.tell()
        stream.seek(0, SEEK_END)
        length: int = stream.tell()
        stream.seek(here)
    except (AttributeError, OSError, ValueError):  # none, one that cannot be sought, or closed
        return 0
    return length


def _length(http: HttpRequest) -> int:
    try:
        return int(http.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return 0


def chunks(http: HttpRequest) -> Iterator[bytes]:
    """Yield a body, however long. Raises `RawPostDataException` when it is gone."""
    if fits(http):
        yield http.body
        return
    if http._read_started:  # type: ignore[attr-defined]  # noqa: SLF001
        raise RawPostDataException
    # Longer than what Django would hold in memory, and perhaps never read as `body`: read it as the stream that it
    # is, and lay a copy in its place. A view that asks for `body` gets its RequestDataTooBig as ever.
    in_memory = max(settings.FILE_UPLOAD_MAX_MEMORY_SIZE, 1)  # 0 would mean "for ever"
    copy = SpooledTemporaryFile(in_memory, dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115 - closed with the request
    while chunk := http.read(CHUNK):
        copy.write(chunk)
        yield chunk
    copy.seek(0)
    weakref.finalize(http, copy.close)
    http._stream = copy  # type: ignore[assignment]  # noqa: SLF001
    http._read_started = False  # type: ignore[attr-defined]  # noqa: SLF001
