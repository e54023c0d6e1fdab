"""Checks of django-ninja operations, which the middleware cannot guard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from ...api import Finding, setting
from ...checks.middleware import guards_every_view
from ...checks.routes import operation_problems
from ...checks.settings import after_settings
from ...checks.urlconf import are_exempt, name_of, views
from ...core.policy import SAFE_METHODS
from ...http.kinds import operation_of, operations_of
from ...http.markers import mark_of
from ...http.views import route_of


class E070(Finding):
    """IDEMPOTENCY["REQUIRED"] is set, and IdempotencyMiddleware cannot guard django-ninja
    operations: %(count)s, such as %(view)s. A request to one of them raises.

    Put @idempotent() on each function, directly below the decorator that makes it an operation, or
    @idempotency_exempt.
    """


class W074(Finding):
    """IdempotencyMiddleware does not guard django-ninja operations, whose authentication comes
    after it: %(count)s run unguarded, such as %(view)s.

    Put @idempotent() on each function that must not run twice, directly below the decorator that
    makes it an operation, and @idempotency_exempt on the others; or %(silence)s.
    """


@after_settings
def check_operations(**_: Any) -> Iterator[CheckMessage]:
    """Check every operation of the URLconf."""
    found: dict[str, CheckMessage] = {}  # ninja lists a path once for each of its operations
    outside: dict[str, None] = {}
    for callback, leading in views():
        for operation in operations_of(callback):
            name = f"{name_of(operation.view_func)} ({leading[0].path})"
            for problem in operation_problems(operation, name):
                found.setdefault(f"{problem.id} {problem.msg}", problem)
            if _is_outside(callback, operation) and not are_exempt(leading):
                outside[name] = None
    if outside and guards_every_view():
        kind = E070 if setting("REQUIRED") is True else W074
        found[kind.__name__] = kind(count=len(outside), view=next(iter(outside)))
    yield from found.values()


def _is_outside(callback: Any, operation: Any) -> bool:
    """Does it handle an unsafe method with neither a guard nor an exemption?"""
    methods = [
        method for method in operation.methods if operation_of(callback, method) is operation
    ]
    unsafe = [method for method in methods if method not in SAFE_METHODS]
    return (
        bool(unsafe)
        and mark_of(operation).policy is None
        and not route_of(callback, unsafe[0]).exempt
    )
