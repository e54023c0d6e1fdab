"""Kinds of views that other packages make.

An optional app for such a package has a `ViewKind` as its extension. Without the app the views of
those packages that need one are left unguarded, and reported; what would guard them raises.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.http import HttpRequest

from ..core.policy import Policy
from ..errors import ConfigurationError
from ..runtime.app_extensions import AppExtension, app_extensions
from .markers import view_class

#: The packages whose views are guarded wrongly as if they were Django's or REST framework's.
ADAPTED: tuple[str, ...] = ("adrf", "allauth", "dmr", "graphene_django", "ninja", "strawberry")

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


#: Somebody has decided that a view needs no guard.
EXEMPT = Reason("exempt", "it is exempt", logging.INFO)


class ViewKind(AppExtension):
    """Says how the views of another package are guarded. Each method does nothing until a kind
    overrides it.
    """

    #: The packages that make its views.
    packages: tuple[str, ...] = ()
    #: Why the middleware leaves its views to a guard of their own; with the code of `EXEMPT`, they
    #: need none. `None`: it guards them.
    left: Reason | None = None
    #: What one of its views is called: "a GraphQL view".
    called = ""
    #: The advice where the middleware leaves one of its views: "Put @idempotent() on its class".
    fix = ""
    #: The error for a guarded function that is called inside of a view, and not by what it guards
    #: there; "": it is guarded in any case.
    astray = ""
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

    # -------------------------------------------------------------------------------- the decorator

    def offer(self, guarded: Function, view: Function, policy: Policy) -> None:
        """Prepare a guarded function, in case the package makes it a view.

        Raises `ImproperlyConfigured` where the package has made the function a view already, and
        would call it without its guard.
        """

    def guard_class(self, cls: type[Any], policy: Policy) -> type[Any] | None:
        """Return one of its classes under guard; `None`: its handlers are to be guarded."""

    def guard_method(
        self, method: Function, marks: Marks, policy: Policy, guard: Function, owner: type[Any]
    ) -> bool:
        """Guard a method if its class, or `marks`, which decorators above ours have set, say that
        it is of this kind. Was it?
        """
        return False

    # ------------------------------------------------------------------- async, in a REST framework

    def dispatch(self, view: Any, request: HttpRequest, terms: Any, run: Function) -> Any:
        """Return a coroutine that guards the dispatch of an async view; `None`: nothing can."""

    def arun_inside(self, request: Any, policy: Policy, function: Function) -> Awaitable[Any]:
        """Return a coroutine that runs an async function below `@api_view` under guard."""
        raise ConfigurationError(
            "An async function below @api_view is guarded only in a view of a package whose "
            "optional app awaits it, as that of adrf does."
        )


#: The kind of Django's views, and REST framework's.
ORDINARY = ViewKind()


class Unknown(ViewKind):
    """The kind of a view whose package needs an optional app, and that is not installed."""

    def __init__(self, package: str, *, is_rest: bool) -> None:
        self.package = package
        self.called = f"a view of {package}"
        self.fix = (
            f"Add django-idempotency's optional app for {package} to INSTALLED_APPS: the line is in "
            'its documentation under "Views of other packages"'
        )
        self.astray = f"Nothing can guard {self.called}. {self.fix}."
        if not is_rest:
            self.left = Reason(
                "unknown-package",
                f"it is {self.called}, and the optional app for that is not installed",
            )

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse the function, the class, or the request."""
        raise ImproperlyConfigured(self.astray)

    offer = guard_class = guard_method = dispatch = arun_inside = _refuse


def kinds() -> list[ViewKind]:
    """Return the kinds that installed apps know.

    Raises `ImproperlyConfigured` before Django has them, if a package is imported whose views one
    of them may guard.
    """
    if not apps.apps_ready:  # a decorator in a module that the settings or a package import
        if sys.modules.keys() & ADAPTED:
            raise ImproperlyConfigured(
                "A view was guarded before Django's apps were ready, so django-idempotency cannot "
                "know if it is of another package, such as django-ninja. Import its module later: "
                "in the URLconf, or in ready() of an AppConfig."
            )
        return []
    return [each for each in app_extensions() if isinstance(each, ViewKind)]


def offer(guarded: Function, view: Function, policy: Policy) -> None:
    """Let each kind prepare a guarded function.

    Raises `ImproperlyConfigured` where another package has made the function a view already.
    """
    for kind in {*kinds(), kind_of(view)}:
        kind.offer(guarded, view, policy)


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
            known = (view, question(view, *others))
            answers[asked] = known
        return known[1]

    setting_changed.connect(lambda **_: answers.clear(), weak=False)
    return ask


@asked_once
def kind_of(view: Any) -> ViewKind:
    """Return the kind of a callback of the URLconf, of a class, or of a function to be guarded."""
    owned = view_class(view) or view
    for kind in kinds():
        if kind.owns(owned):
            return kind
    is_rest = hasattr(owned, "initialize_request")
    if is_rest and not owned.view_is_async:
        return ORDINARY
    known = {package for kind in kinds() for package in kind.packages}
    for package in _made_by(owned):
        if package in ADAPTED and package not in known:
            return Unknown(package, is_rest=is_rest)
    return ORDINARY


def _made_by(view: object) -> Iterator[str]:
    """Yield the packages that a function or the bases of a class come from, and those that have
    made a function a view.
    """
    for base in getattr(view, "__mro__", [view]):
        yield str(getattr(base, "__module__", "")).partition(".")[0]
    # Ninja leaves this on a function that it has made an operation: it calls that without what
    # stands above its own decorator.
    if hasattr(view, "_ninja_operation"):
        yield "ninja"


def operations_of(callback: Any) -> list[Any]:
    """Return what lies below a callback of the URLconf and carries marks."""
    return [operation for kind in kinds() for operation in kind.operations_of(callback)]


def operation_of(callback: Any, method: str) -> Any:
    """Return the operation below a callback that handles a method, or `None`."""
    return next((each for each in operations_of(callback) if method.upper() in each.methods), None)
