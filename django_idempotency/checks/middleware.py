"""Check of the middleware's position. Classes are inspected, never instantiated."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage
from django.utils.module_loading import import_string

from ..middleware import IdempotencyMiddleware
from ..stores.check_messages import Finding


class E021(Finding):
    """MIDDLEWARE lists IdempotencyMiddleware %(count)s times.

    Keep "django_idempotency.middleware.IdempotencyMiddleware" once, as the last line.
    """


class E022(Finding):
    """IdempotencyMiddleware comes before %(other)s, which identifies the owner of a key.

    Move "django_idempotency.middleware.IdempotencyMiddleware" below "%(other)s" in MIDDLEWARE; the
    last line is best.
    """


class W072(Finding):
    """IdempotencyMiddleware comes before %(other)s, whose process_view may refuse a request: it is
    not asked about those that are guarded.

    Move "django_idempotency.middleware.IdempotencyMiddleware" below "%(other)s" in MIDDLEWARE; the
    last line is best.
    """


def check_middleware(**_: Any) -> list[CheckMessage]:
    """Check the order of MIDDLEWARE."""
    return list(_order(_installed()))


def guards_every_view() -> bool:
    """Is the middleware installed?"""
    return any(_is_a(middleware, IdempotencyMiddleware) for _, middleware in _installed())


def _order(installed: list[tuple[str, Any]]) -> Iterator[CheckMessage]:
    places = [
        place
        for place, (_, middleware) in enumerate(installed)
        if _is_a(middleware, IdempotencyMiddleware)
    ]
    if not places:
        return
    if len(places) > 1:
        yield E021(count=len(places))
    for path, middleware in installed[places[0] + 1 :]:
        if _is_a(middleware, IdempotencyMiddleware):
            continue
        if _authenticates(middleware):
            yield E022(other=path)
        elif _may_refuse(middleware):
            yield W072(other=path)


def _may_refuse(middleware: Any) -> bool:
    """May the process_view of a middleware respond, or raise to refuse?

    One that only observes, such as a counter, does neither: its source returns nothing and raises
    nothing. A hook without readable source may respond.
    """
    method = getattr(middleware, "process_view", None) if inspect.isclass(middleware) else None
    if method is None:
        return False
    tree = _tree_of(method)
    return tree is None or any(
        isinstance(node, ast.Raise) or _returns_something(node) for node in ast.walk(tree)
    )


def _tree_of(function: Any) -> ast.Module | None:
    """Return the syntax tree of a function; `None` if it has no source that can be read."""
    try:
        source = inspect.getsource(function)
        # An indented source stays as it is: the lines of a string in it may begin at column 0.
        return ast.parse(f"if 1:\n{source}" if source[0].isspace() else source)
    except Exception:  # noqa: BLE001 - a file that has changed, or a source too deep, raises almost anything
        return None


def _returns_something(node: ast.AST) -> bool:
    return isinstance(node, ast.Return) and not (
        node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
    )


def _authenticates(middleware: Any) -> bool:
    """Is it Django's AuthenticationMiddleware?

    Compared by name: importing it needs django.contrib.auth installed.
    """
    return inspect.isclass(middleware) and any(
        f"{base.__module__}.{base.__qualname__}"
        == "django.contrib.auth.middleware.AuthenticationMiddleware"
        for base in middleware.__mro__
    )


def _installed() -> list[tuple[str, Any]]:
    return [(path, _imported(path)) for path in settings.MIDDLEWARE]


def _imported(path: str) -> Any:
    try:
        return import_string(path)
    except Exception:  # noqa: BLE001 - Django reports it when it loads the middleware
        return None


def _is_a(middleware: Any, cls: type[Any]) -> bool:
    return inspect.isclass(middleware) and issubclass(middleware, cls)
