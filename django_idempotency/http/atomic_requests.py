"""ATOMIC_REQUESTS and the guard: the claim must be committed before the view's transaction begins.

So a guarded view opts out of Django's own wrapping, and opens the same transactions itself when it
is not guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, TypeVar

from django.db import connections
from django.http import HttpRequest

from ..core.conclusions import Rollback
from ..stores.blocks import Block

#: What `@transaction.non_atomic_requests` sets on a view, and the only thing that Django's handler
#: asks before it opens the transactions of ATOMIC_REQUESTS. The decorator takes the name of one
#: database; we exclude all, and some only while a request is guarded, and have to know which ones
#: the project has excluded.
NON_ATOMIC = "_non_atomic_requests"


def excluded_aliases(view: Any) -> Any:
    """Return what Django finds on a view: a set of aliases, ours or the project's, or nothing."""
    return getattr(view, NON_ATOMIC, ())


def exclude_aliases(view: Any, aliases: Collection[str]) -> None:
    """Exclude a view from ATOMIC_REQUESTS on these databases.

    Raises `AttributeError` if it takes no attributes.
    """
    setattr(view, NON_ATOMIC, aliases)


View = TypeVar("View", bound=Callable[..., Any])


class AllAliases(set[str]):
    """A set that contains every alias, for a view to be excluded on: databases may be set up later
    than views.

    Iterating yields only the aliases of the project's own `@non_atomic_requests`.
    """

    def __contains__(self, alias: object) -> bool:
        return True


#: "Open none of them": for code inside which they are already open.
ALL_ALIASES = AllAliases()


def non_atomic_aliases(view: Any) -> set[str]:
    """Return the aliases that the project itself excludes with `@non_atomic_requests`."""
    return set(excluded_aliases(view))


def non_atomic_aliases_of(request: HttpRequest) -> set[str]:
    """Return the aliases that the resolved view excludes with `@non_atomic_requests`."""
    return non_atomic_aliases(getattr(getattr(request, "resolver_match", None), "func", None))


def asks_for_transaction(alias: str | None, non_atomic: AbstractSet[str]) -> bool:
    """Does the project use ATOMIC_REQUESTS on a database, for a view that excludes the aliases
    `non_atomic`?
    """
    settings = {} if alias is None else connections.settings.get(alias, {})
    return bool(settings.get("ATOMIC_REQUESTS")) and alias not in non_atomic


def opens_any(non_atomic: AbstractSet[str]) -> bool:
    """Does the project use ATOMIC_REQUESTS on any database, for a view that excludes the aliases
    `non_atomic`?
    """
    return any(asks_for_transaction(alias, non_atomic) for alias in connections.settings)


def leave_atomic_requests(view: View) -> View:
    """Exclude a view from ATOMIC_REQUESTS, on every database."""
    exclude_aliases(view, AllAliases(non_atomic_aliases(view)))
    return view


class OpenedTransactions:
    """The transactions that atomic_requests() has opened."""

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self.blocks = tuple(blocks)

    @property
    def committed(self) -> bool:
        """Are all of them committed?

        A later exception comes from an `on_commit` callback, or from rendering.
        """
        return bool(self.blocks) and all(block.committed for block in self.blocks)

    def guard(self) -> None:
        """Note that the request is guarded, which is known only after they were opened."""
        for block in self.blocks:
            block.guard()

    @property
    def undone(self) -> Rollback:
        """Why one of them was rolled back, although nothing was raised.

        Read after they have ended.
        """
        causes = [block.undone for block in self.blocks]
        for cause in (Rollback.ERROR, Rollback.ASKED):
            if cause in causes:
                return cause
        return Rollback.NONE

    def restore(self) -> None:
        """Leave none of them open, wherever an interrupt has cut their end.

        A guard ends one that it has taken over.
        """
        for block in reversed(self.blocks):
            block.restore()

    @property
    def error(self) -> BaseException | None:
        """The error for which one of them was rolled back, if Django has seen it."""
        return next((block.error for block in self.blocks if block.undone is Rollback.ERROR), None)

    def on(self, alias: str | None) -> Block | None:
        """Return the one on a database."""
        return next((block for block in self.blocks if block.using == alias), None)


#: None was opened.
NONE_OPENED = OpenedTransactions()


def atomic_requests(
    non_atomic: AbstractSet[str], *, but: str | None = None, noted: bool = True
) -> AbstractContextManager[OpenedTransactions]:
    """Open the transactions of ATOMIC_REQUESTS, except those that the project excludes and the
    guarded one.

    `noted`: may a guard take one over, or ask whether they are committed?
    """
    aliases = [
        alias
        for alias, settings in connections.settings.items()
        if settings["ATOMIC_REQUESTS"] and alias != but and alias not in non_atomic
    ]
    return _open(aliases, noted=noted) if aliases else nullcontext(NONE_OPENED)


@contextmanager
def _open(aliases: list[str], *, noted: bool) -> Iterator[OpenedTransactions]:
    blocks = [Block(alias, noted=noted) for alias in reversed(aliases)]  # as Django nests them
    opened = OpenedTransactions(blocks)
    try:
        with ExitStack() as stack:
            for block in blocks:
                stack.enter_context(block)
            yield opened
    except BaseException:
        opened.restore()
        raise
