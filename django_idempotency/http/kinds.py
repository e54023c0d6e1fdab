"""Kinds of views that other packages make.

The core asks these, and knows no package by name but in one table.

A kind lies in `contrib/`. It is loaded once its package is; without our folder it is not there.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

from django.core.checks import CheckMessage
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.utils.module_loading import import_string

from ..core.policy import Policy
from .markers import view_class

#: Kind → the packages of which one has to be loaded. The first that owns a view decides.
SHIPPED: dict[str, tuple[str, ...]] = {
    "django_idempotency.contrib.adrf.kind.Adrf": ("adrf",),
    "django_idempotency.contrib.graphql.kind.GraphQL": ("graphene_django", "strawberry"),
    "django_idempotency.contrib.ninja.kind.Ninja": ("ninja",),
    "django_idempotency.contrib.allauth.kind.Allauth": ("allauth",),
    "django_idempotency.contrib.modern_rest.kind.ModernRest": ("dmr",),
}

Function = Callable[..., Any]
#: What decorators above ours have set on a function: its `__dict__`.
Marks = dict[str, Any]
Answer = TypeVar("Answer")
#: How many answers are remembered. Only tests, and projects that make a view for each request, have
#: more.
LARGEST = 4096


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a request is not guarded: a stable code, and a sentence. A decision of the project is not
    a warning.
    """

    code: str
    sentence: str
    level: int = logging.WARNING


class ViewKind:
    """What another package's views ask for. Each method does nothing until a kind overrides it."""

    #: Why its views are exempt, unless they guard themselves; "": they are not.
    exempt = ""
    #: Why the middleware leaves its views to a guard of their own; `None`: it guards them.
    left: Reason | None = None
    #: What one of its views is called: "a GraphQL view".
    called = ""
    #: The unsafe methods of its views, in lower case, if those have no handlers.
    handlers: tuple[str, ...] = ()

    def owns(self, view: Any) -> bool:
        """Is a function, or the class behind a callback, of this kind?"""
        return False

    def operations_of(self, callback: Any) -> Sequence[Any]:
        """Return what lies below a callback and carries marks: objects with `methods` and
        `view_func`.
        """
        return ()

    def refusal(self, callback: Any, method: str) -> str:
        """Say why the middleware cannot guard a view that it leaves, and what to type, for
        "REQUIRED".
        """
        return ""

    def problems(self, view: str) -> Iterator[CheckMessage]:
        """Yield what `manage.py check` says about a view that the middleware leaves."""
        yield from ()

    # -------------------------------------------------------------------------------- the decorator

    def refuse(self, view: Any) -> None:
        """Raise `ImproperlyConfigured` where `@idempotent()` is in the wrong place."""

    def offer(self, guarded: Callable[..., Any], view: Callable[..., Any], policy: Policy) -> None:
        """Prepare a guarded function, in case the package makes it a view."""

    def guard_class(self, cls: type[Any], policy: Policy) -> type[Any] | None:
        """Return one of its classes under guard; `None`: its handlers are to be guarded."""

    def guard_method(
        self, method: Function, marks: Marks, policy: Policy, guard: Function, owner: type[Any]
    ) -> bool:
        """Guard a method if its class, or `marks`, which decorators above ours have set, say that
        it is of this kind. Was it?
        """
        return False

    # ---------------------------------------------------------------------------------- the request

    def refuse_call(self, request: HttpRequest, policy: Policy) -> None:
        """Raise `ConfigurationError` if a guarded function cannot be guarded inside a view of this
        kind.
        """

    def dispatch(self, view: Any, request: HttpRequest, terms: Any, run: Callable[[], Any]) -> Any:
        """Return what guards the dispatch of a REST framework view; `None`: the ordinary guard
        does.
        """

    def arun_inside(
        self, request: Any, policy: Policy, function: Callable[[], Awaitable[Any]]
    ) -> Awaitable[Any] | None:
        """Return what runs an async function below `@api_view` under guard; `None`: nothing can."""


def is_there(module: str) -> bool:
    """Can a module be imported? Imports only the packages around it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # of a folder that is not there; of a stand-in for a package
        return False


def kinds(*, to_come: bool = False) -> list[ViewKind]:
    """Return the kinds that a view may be of: those whose package is loaded.

    `to_come`: also those whose package is only installed, which may make a view of a function
    later.
    """
    is_used = _is_installed if to_come else sys.modules.__contains__
    found = (_shipped(path) for path, packages in SHIPPED.items() if any(map(is_used, packages)))
    return [kind for kind in found if kind is not None]


_is_installed = functools.cache(is_there)


@functools.cache
def _shipped(path: str) -> ViewKind | None:
    kind: ViewKind | None = import_string(path)() if is_there(path.rpartition(".")[0]) else None
    return kind


def asked_once(question: Callable[..., Answer]) -> Callable[..., Answer]:
    """Remember the answers to a question about a view, which do not change.

    By the identity of the view: a proxy, such as a tracer's, is equal to what it is around.
    """
    answers: dict[tuple[Any, ...], tuple[Any, Answer]] = {}

    @functools.wraps(question)
    def ask(view: Any, *others: Any) -> Answer:
        asked = (id(view), *others)
        known = answers.get(asked)
        if known is None:
            if len(answers) >= LARGEST:
                answers.clear()
            # With the view, so that no other gets its id.
            known = answers[asked] = (
                view,
                question(view, *others),
            )
        return known[1]

    setting_changed.connect(lambda **_: answers.clear(), weak=False)
    return ask


@asked_once
def kind_of(view: Any) -> ViewKind | None:
    """Return the kind of a callback of the URLconf, or of a class; `None`: it is Django's or REST
    framework's.
    """
    owned = view_class(view) or view
    return next((kind for kind in kinds() if kind.owns(owned)), None)


def operations_of(callback: Any) -> list[Any]:
    """Return what lies below a callback of the URLconf and carries marks."""
    return [operation for kind in kinds() for operation in kind.operations_of(callback)]


def operation_of(callback: Any, method: str) -> Any:
    """Return the operation below a callback that handles a method, or `None`."""
    return next((each for each in operations_of(callback) if method.upper() in each.methods), None)
