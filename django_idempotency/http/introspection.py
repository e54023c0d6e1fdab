"""What Django and REST framework offer no public way to ask or to do. Only this module uses their private names.

tests/http/test_introspection.py fails when a new version changes one of them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.http import HttpRequest

#: What `@transaction.non_atomic_requests` sets on a view, and the only thing that Django's handler asks before it opens
#: the transactions of ATOMIC_REQUESTS. The decorator takes the name of one database; we exclude all, and some only
#: while a request is guarded, and have to know which ones the project has excluded.
NON_ATOMIC = "_non_atomic_requests"


def excluded_aliases(view: Any) -> Any:
    """Return what Django finds on a view: a set of aliases, ours or the project's, or nothing."""
    return getattr(view, NON_ATOMIC, ())


def exclude_aliases(view: Any, aliases: Collection[str]) -> None:
    """Exclude a view from ATOMIC_REQUESTS on these databases. Raises `AttributeError` if it takes no attributes."""
    setattr(view, NON_ATOMIC, aliases)


# ------------------------------------------------------------------------------------------------- a request's body
# `HttpRequest` can be read once, as bytes, as a form or as a stream. We read it before the view does, and the view must
# be able to choose.


def is_read(http: HttpRequest) -> bool:
    """Has any of the body been read as a stream? Django sets it for `body` and for a parsed form, too."""
    return bool(http._read_started)  # type: ignore[attr-defined]  # noqa: SLF001


def is_in_memory(http: HttpRequest) -> bool:
    """Does the request hold its `body`? To ask for that would read it."""
    return hasattr(http, "_body")


def is_form_parsed(http: HttpRequest) -> bool:
    """Does the request hold its `POST`? To ask for that would parse it."""
    return hasattr(http, "_post")


def forget_form(http: HttpRequest) -> None:
    """Undo a failed parse, which leaves an empty form: the view gets the error, too."""
    for name in ("_post", "_files"):
        vars(http).pop(name, None)


def forget_data(request: Any) -> None:
    """Undo a failed parse of a REST framework request: see forget_form()."""
    from rest_framework.request import Empty  # which such a request has loaded

    for name in ("_data", "_files", "_full_data", "_stream"):
        setattr(request, name, Empty)


def stream_of(http: HttpRequest) -> Any:
    """Return what the request reads its body from; `None` for a request that no server made."""
    return getattr(http, "_stream", None)


def replace_stream(http: HttpRequest, stream: Any) -> None:
    """Let the request read its body from a copy, as though none of it had been read."""
    http._stream = stream  # noqa: SLF001
    http._read_started = False  # type: ignore[attr-defined]  # noqa: SLF001
