"""Checks of django-ninja operations, which the middleware cannot guard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from .. import conf
from ..core.policy import SAFE_METHODS, Policy
from ..http.markers import POLICY, is_exempt
from ..http.ninja_views import operation_of, operations_of
from .catalogue import finding
from .middleware import guards_every_view
from .policies import policy_errors
from .settings import check_settings
from .urlconf import are_exempt, views


def check_operations(**_: Any) -> list[CheckMessage]:
    """Check every operation of the URLconf, once the settings are in order."""
    if check_settings():
        return []
    found: dict[str, CheckMessage] = {}  # ninja lists a path once for each of its operations
    outside: dict[str, None] = {}
    for callback, leading in views():
        for operation in operations_of(callback):
            name = f"{name_of(operation)} ({leading[0].path})"
            for message in own_problems(operation, name):
                found.setdefault(f"{message.id} {message.msg}", message)
            if _is_outside(callback, operation) and not are_exempt(leading):
                outside[name] = None
    if outside and guards_every_view():
        code = "E070" if conf.get("REQUIRED") is True else "W074"
        message = finding(code, count=len(outside), view=next(iter(outside)))
        found[code] = message
    return list(found.values())


def name_of(operation: Any) -> str:
    """Name the function of an operation."""
    view = operation.view_func
    return f"{view.__module__}.{getattr(view, '__qualname__', repr(view))}"


def own_problems(operation: Any, name: str) -> Iterator[CheckMessage]:
    """Find what is wrong with the policy of an operation."""
    policy = getattr(operation, POLICY, None)
    if isinstance(policy, Policy):
        yield from policy_errors(name, policy, coroutine="E030" if operation.is_async else None)


def _is_outside(callback: Any, operation: Any) -> bool:
    """Does it handle an unsafe method with neither a guard nor an exemption?"""
    methods = [method for method in operation.methods if operation_of(callback, method) is operation]
    unsafe = [method for method in methods if method not in SAFE_METHODS]
    return bool(unsafe) and not hasattr(operation, POLICY) and not is_exempt(callback, unsafe[0])
