"""Check of the middleware's position. Classes are inspected, never instantiated."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage
from django.utils.module_loading import import_string

from ..middleware import IdempotencyMiddleware
from ..stores.check_messages import Finding


class E022(Finding):
    """IdempotencyMiddleware comes before %(other)s, which identifies the owner of a key.

    Move "django_idempotency.middleware.IdempotencyMiddleware" below "%(other)s" in MIDDLEWARE; the
    last line is best.
    """


class W072(Finding):
    """IdempotencyMiddleware comes before %(other)s, whose process_view may refuse a request: it is
    not asked about those that are guarded.

    Move "django_idempotency.middleware.IdempotencyMiddleware" below "%(other)s" in MIDDLEWARE; the
    last line is best. If that only observes, such as django-prometheus' last one, %(silence)s.
    """


def check_middleware(**_: Any) -> list[CheckMessage]:
    """Check the order of MIDDLEWARE."""
    return list(_order(_installed()))


def guards_every_view() -> bool:
    """Is the middleware installed?"""
    return any(_is_a(middleware, IdempotencyMiddleware) for _, middleware in _installed())


def _order(installed: list[tuple[str, Any]]) -> Iterator[CheckMessage]:
    behind = False
    for path, middleware in installed:
        if _is_a(middleware, IdempotencyMiddleware):
            behind = True
        elif behind and path.endswith("AuthenticationMiddleware"):  # the project's own, too
            yield E022(other=path)
        elif behind and hasattr(middleware, "process_view"):
            yield W072(other=path)


def _installed() -> list[tuple[str, Any]]:
    return [(path, _imported(path)) for path in settings.MIDDLEWARE]


def _imported(path: str) -> Any:
    try:
        return import_string(path)
    except Exception:  # noqa: BLE001 - Django reports it when it loads the middleware
        return None


def _is_a(middleware: Any, cls: type[Any]) -> bool:
    return inspect.isclass(middleware) and issubclass(middleware, cls)
