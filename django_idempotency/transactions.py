"""ATOMIC_REQUESTS and the guard: the claim must be committed before the view's transaction begins.

So a guarded view leaves Django's own wrapping, and opens the same transactions again where it is not guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

from django.db import connections, transaction
from django.http import HttpRequest

View = TypeVar("View", bound=Callable[..., Any])


class EveryAlias(set[str]):
    """A set that every alias is in, for `view._non_atomic_requests`: databases may be set up later than views.

    What it was made of, the project's own `@non_atomic_requests`, it still yields.
    """

    def __contains__(self, alias: object) -> bool:
        return True


#: The alias whose transaction the guard is, for the request whose view runs next. Not what is held: a view that is
#: guarded may send requests of its own, which leave nothing.
LEAVES: ContextVar[str | None] = ContextVar("django_idempotency_leaves", default=None)


class UnlessHeld(set[str]):
    """A set that an alias is in while the current request holds a record there: that request alone leaves."""

    def __contains__(self, alias: object) -> bool:
        return super().__contains__(alias) or (alias is not None and alias == LEAVES.get())


#: "Open none of them": for a place where they are open already.
EVERYTHING = EveryAlias()


def declared_non_atomic(view: Any) -> set[str]:
    """Return the aliases that the project itself has taken out by `@non_atomic_requests`."""
    return set(getattr(view, "_non_atomic_requests", ()))


def declared_for(request: HttpRequest) -> set[str]:
    """Return what the project has taken out for the view that a request was resolved to."""
    return declared_non_atomic(getattr(getattr(request, "resolver_match", None), "func", None))


def leave_atomic_requests(view: View) -> View:
    """Take a view out of ATOMIC_REQUESTS, on every database."""
    # The attribute that Django's own decorator sets.
    view._non_atomic_requests = EveryAlias(declared_non_atomic(view))  # type: ignore[attr-defined]  # noqa: SLF001
    return view


def leave_while_held(view: Any) -> None:
    """Take a view out of ATOMIC_REQUESTS for those requests that the middleware guards."""
    if not isinstance(getattr(view, "_non_atomic_requests", None), (EveryAlias, UnlessHeld)):
        # A bound method (of an admin site) takes no attribute, but shows those of its function.
        getattr(view, "__func__", view)._non_atomic_requests = UnlessHeld(declared_non_atomic(view))  # noqa: SLF001


class Opened:
    """What atomic_requests() has opened."""

    def __init__(self, count: int = 0) -> None:
        self._count = self._open = count

    def note(self) -> None:
        self._open -= 1

    @property
    def committed(self) -> bool:
        """Are all of them committed? An exception after that is an `on_commit` callback's, or of the rendering."""
        return self._count > 0 and self._open == 0


def atomic_requests(declared: set[str], *, but: str | None = None) -> AbstractContextManager[Opened]:
    """Open what ATOMIC_REQUESTS asks for, except the aliases that the project took out and the one under guard."""
    aliases = [
        alias
        for alias, settings in connections.settings.items()
        if settings["ATOMIC_REQUESTS"] and alias != but and alias not in declared
    ]
    return _open(aliases) if aliases else nullcontext(Opened())


@contextmanager
def _open(aliases: list[str]) -> Iterator[Opened]:
    opened = Opened(len(aliases))
    with ExitStack() as stack:
        for alias in aliases:
            stack.enter_context(transaction.atomic(using=alias))
            transaction.on_commit(opened.note, using=alias)
        yield opened
