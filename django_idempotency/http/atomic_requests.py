"""ATOMIC_REQUESTS and the guard: the claim must be committed before the view's transaction begins.

So a guarded view leaves Django's own wrapping, and opens the same transactions again where it is not guarded.
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


def asks_for_transaction(alias: str | None, declared: AbstractSet[str]) -> bool:
    """Does the project ask for ATOMIC_REQUESTS on a database, for a view that has taken out those `declared`?"""
    settings = {} if alias is None else connections.settings.get(alias, {})
    return bool(settings.get("ATOMIC_REQUESTS")) and alias not in declared


def leave_atomic_requests(view: View) -> View:
    """Take a view out of ATOMIC_REQUESTS, on every database."""
    # The attribute that Django's own decorator sets.
    view._non_atomic_requests = EveryAlias(declared_non_atomic(view))  # type: ignore[attr-defined]  # noqa: SLF001
    return view


def leave_while_held(view: Any) -> None:
    """Take a view out of ATOMIC_REQUESTS for those requests that the middleware guards."""
    if not isinstance(getattr(view, "_non_atomic_requests", None), (EveryAlias, UnlessHeld)):
        # A bound method (of an admin site) takes no attribute, but shows those of its function.
        carrier = getattr(view, "__func__", view)
        try:
            carrier._non_atomic_requests = UnlessHeld(declared_non_atomic(view))  # noqa: SLF001
        except AttributeError:
            if can_be_left(view):
                return
            raise ConfigurationError(cannot_leave(view)) from None


def cannot_leave(view: Any) -> str:
    """Say that a view cannot leave ATOMIC_REQUESTS, and what to do."""
    return (
        f"a {type(view).__name__} takes no attributes, so it cannot leave the transaction of ATOMIC_REQUESTS, and a claim "
        "inside of that is seen by nobody. Put @idempotent() on a function that calls it."
    )


def can_be_left(view: Any) -> bool:
    """Can one request to a view be taken out of ATOMIC_REQUESTS? `__slots__` without a `__dict__` say no."""
    carrier = getattr(view, "__func__", view)
    if hasattr(carrier, "__dict__") or "_non_atomic_requests" in getattr(type(carrier), "__slots__", ()):
        return True
    declared = declared_non_atomic(view)
    return all(alias in declared or not s["ATOMIC_REQUESTS"] for alias, s in connections.settings.items())


class Opened:
    """What atomic_requests() has opened."""

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self.blocks = tuple(blocks)

    @property
    def committed(self) -> bool:
        """Are all of them committed? An exception after that is an `on_commit` callback's, or of the rendering."""
        return bool(self.blocks) and all(block.committed for block in self.blocks)

    def on(self, alias: str | None) -> Block | None:
        """Return the one on a database."""
        return next((block for block in self.blocks if block.using == alias), None)


def atomic_requests(
    declared: AbstractSet[str], *, but: str | None = None, noted: bool = True
) -> AbstractContextManager[Opened]:
    """Open what ATOMIC_REQUESTS asks for, except the aliases that the project took out and the one under guard.

    `noted`: may a guard take one over, or ask whether they are committed?
    """
    aliases = [
        alias
        for alias, settings in connections.settings.items()
        if settings["ATOMIC_REQUESTS"] and alias != but and alias not in declared
    ]
    return _open(aliases, noted=noted) if aliases else nullcontext(Opened())


@contextmanager
def _open(aliases: list[str], *, noted: bool) -> Iterator[Opened]:
    blocks = [Block(alias, noted=noted) for alias in reversed(aliases)]  # as Django nests them
    with ExitStack() as stack:
        for block in blocks:
            stack.enter_context(block)
        yield Opened(blocks)
