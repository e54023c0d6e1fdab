"""ATOMIC_REQUESTS and the guard: the claim must be committed before the view's transaction begins.

So a guarded view opts out of Django's own wrapping, and opens the same transactions itself when it is not guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

from django.db import connections
from django.http import HttpRequest

from ..errors import ConfigurationError
from ..stores.blocks import Block
from .introspection import NON_ATOMIC, exclude_aliases, excluded_aliases

View = TypeVar("View", bound=Callable[..., Any])


class AllAliases(set[str]):
    """A set that contains every alias, for a view to be excluded on: databases may be set up later than views.

    Iterating yields only the aliases of the project's own `@non_atomic_requests`.
    """

    def __contains__(self, alias: object) -> bool:
        return True


#: The alias of the guard's transaction, for the request whose view runs next. Not the current guard: a guarded view may
#: send requests of its own, which leave nothing.
guarded_alias: ContextVar[str | None] = ContextVar("django_idempotency_guarded_alias", default=None)


class ExcludedWhileGuarded(set[str]):
    """A set that contains an alias while the current request holds a record there: only that request leaves."""

    def __contains__(self, alias: object) -> bool:
        return super().__contains__(alias) or (alias is not None and alias == guarded_alias.get())


#: "Open none of them": for code inside which they are already open.
ALL_ALIASES = AllAliases()


def non_atomic_aliases(view: Any) -> set[str]:
    """Return the aliases that the project itself excludes with `@non_atomic_requests`."""
    return set(excluded_aliases(view))


def non_atomic_aliases_of(request: HttpRequest) -> set[str]:
    """Return the aliases that the resolved view excludes with `@non_atomic_requests`."""
    return non_atomic_aliases(getattr(getattr(request, "resolver_match", None), "func", None))


def asks_for_transaction(alias: str | None, non_atomic: AbstractSet[str]) -> bool:
    """Does the project use ATOMIC_REQUESTS on a database, for a view that excludes the aliases `non_atomic`?"""
    settings = {} if alias is None else connections.settings.get(alias, {})
    return bool(settings.get("ATOMIC_REQUESTS")) and alias not in non_atomic


def leave_atomic_requests(view: View) -> View:
    """Exclude a view from ATOMIC_REQUESTS, on every database."""
    exclude_aliases(view, AllAliases(non_atomic_aliases(view)))
    return view


def leave_while_guarded(view: Any) -> None:
    """Exclude a view from ATOMIC_REQUESTS for those requests that the middleware guards."""
    if not isinstance(excluded_aliases(view), (AllAliases, ExcludedWhileGuarded)):
        # A bound method (of an admin site) takes no attributes, but has those of its function.
        carrier = getattr(view, "__func__", view)
        try:
            exclude_aliases(carrier, ExcludedWhileGuarded(non_atomic_aliases(view)))
        except AttributeError:
            if can_be_left(view):
                return
            raise ConfigurationError(cannot_leave(view)) from None


def cannot_leave(view: Any) -> str:
    """Return why a view cannot leave ATOMIC_REQUESTS, and what to do."""
    return (
        f"a {type(view).__name__} takes no attributes, so it cannot leave the transaction of ATOMIC_REQUESTS, and no other "
        "connection sees a claim inside that. Put @idempotent() on a function that calls it."
    )


def can_be_left(view: Any) -> bool:
    """Can one request to a view leave ATOMIC_REQUESTS? Not if the view has `__slots__` without a `__dict__`."""
    carrier = getattr(view, "__func__", view)
    if hasattr(carrier, "__dict__") or NON_ATOMIC in getattr(type(carrier), "__slots__", ()):
        return True
    non_atomic = non_atomic_aliases(view)
    return all(alias in non_atomic or not s["ATOMIC_REQUESTS"] for alias, s in connections.settings.items())


class OpenedTransactions:
    """The transactions that atomic_requests() has opened."""

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self.blocks = tuple(blocks)

    @property
    def committed(self) -> bool:
        """Are all of them committed? A later exception comes from an `on_commit` callback, or from rendering."""
        return bool(self.blocks) and all(block.committed for block in self.blocks)

    def on(self, alias: str | None) -> Block | None:
        """Return the one on a database."""
        return next((block for block in self.blocks if block.using == alias), None)


def atomic_requests(
    non_atomic: AbstractSet[str], *, but: str | None = None, noted: bool = True
) -> AbstractContextManager[OpenedTransactions]:
    """Open the transactions of ATOMIC_REQUESTS, except those that the project excludes and the guarded one.

    `noted`: may a guard take one over, or ask whether they are committed?
    """
    aliases = [
        alias
        for alias, settings in connections.settings.items()
        if settings["ATOMIC_REQUESTS"] and alias != but and alias not in non_atomic
    ]
    return _open(aliases, noted=noted) if aliases else nullcontext(OpenedTransactions())


@contextmanager
def _open(aliases: list[str], *, noted: bool) -> Iterator[OpenedTransactions]:
    blocks = [Block(alias, noted=noted) for alias in reversed(aliases)]  # as Django nests them
    with ExitStack() as stack:
        for block in blocks:
            stack.enter_context(block)
        yield OpenedTransactions(blocks)
