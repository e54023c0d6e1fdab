"""Blocking calls from async code, which give back the database connections that they open.

A thread of an async request keeps its connection until the request ends. What awaits a provider
would hold it for nothing, and a pool has few. So each call of ours that comes before the work, or
in the middle of it, closes what it has opened, or what `keep` has left open for it:

    admission ── claim ┐        the work        ┌ settle ┐
    opens, keeps       └ gives back             └ opens  └ gives back

What the project has opened stays open: the session of a connection may have settings of the
project's own. So does a connection inside a transaction, and that of sync work, which belongs to
its thread until the request ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from django.db import Error, connections

from ..core.concurrency import in_thread

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")

#: A connection of Django's → the driver's that a call has opened and kept for the next one.
_KEPT: WeakKeyDictionary[BaseDatabaseWrapper, Any] = WeakKeyDictionary()
#: In place of the driver's: it was closed, and what opens it before the next call keeps it for
#: that.
_CLOSED = object()


async def in_database_thread(
    call: Callable[..., T],
    *given: Any,
    keep: bool = False,
    thread_sensitive: bool = True,
    when: bool = True,
) -> T:
    """Make a call in a thread, see `in_thread`.

    The connections that it opens there are given back, however it ends.

    `keep`: if it returns something, they are left to the next such call, which follows before
    anything of the project's.
    """
    if not when:
        return call(*given)
    return await in_thread(
        _lent, call, given, keep, thread_sensitive=thread_sensitive, close=connections.close_all
    )


async def keep_opened(work: Callable[[], Awaitable[T]]) -> T:
    """Await what makes such calls of its own.

    What they open is left to the next call of ours, as with `keep`.
    """
    await in_thread(_note_closed, close=connections.close_all)
    return await work()


def _note_closed() -> None:
    for each in connections.all():
        if each.connection is None:
            _KEPT[each] = _CLOSED


def _lent(call: Callable[..., T], given: tuple[Any, ...], keep: bool) -> T:
    before = {
        each: each.connection
        for each in connections.all(initialized_only=True)
        if not _is_kept(each)
    }
    result: T | None = None
    try:
        result = call(*given)
    finally:
        for each in connections.all(initialized_only=True):
            if each.connection is None or each.connection is before.get(each):
                continue
            if keep and result is not None:
                _KEPT[each] = each.connection
            else:
                _give_back(each)
    return result


def _is_kept(connection: BaseDatabaseWrapper) -> bool:
    kept = _KEPT.pop(connection, None)
    return kept is _CLOSED or (kept is not None and kept is connection.connection)


def _give_back(connection: BaseDatabaseWrapper) -> None:
    """Close a connection, or return it to its pool, unless a transaction is open on it."""
    if not connection.in_atomic_block and connection.get_autocommit():
        with suppress(Error):
            connection.close()
