"""The work's own transaction, begun and committed in the same trips as the statements of its guard.

Django's `atomic()` sends BEGIN and COMMIT alone. Here BEGIN goes with the statement that locks the record, and COMMIT with
the one that settles it:

    PostgreSQL   BEGIN; SELECT … FOR UPDATE        the work        UPDATE …; COMMIT         one message each
    SQLite       SAVEPOINT, UPDATE …               the work        UPDATE …, RELEASE        no trips; see `sqlite`

To Django, and to the work, it is an `atomic()` block without another around it: its state on the connection is the same,
callbacks of `on_commit` run after COMMIT, and a rollback is Django's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import Error, transaction

from ....errors import TransactionLost

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper


#: A statement and its parameters.
Bound = tuple[str, list[Any]]


class WorkTransaction:
    """A context manager for an outermost transaction on a connection in autocommit.

    Its exit commits, unless an error leaves it or the transaction is marked for rollback. It raises `TransactionLost` if the
    transaction is not the one that began here. After settle_at_commit() it also raises `OwnershipLost` if the statement
    updates no row, and `LostRace` or `StoreUnavailable` if it fails. In all four cases everything was rolled back, and so it
    was when the error of a failed COMMIT is raised, as it is. `OutcomeUnknown`: there was no response to COMMIT.
    """

    #: Prepares a cursor of the work before it executes a statement, if that is needed.
    adapt: Callable[[CursorWrapper], None] | None = None

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self._atomic = transaction.atomic(using=connection.alias)
        self._settle: Bound | None = None

    def __enter__(self) -> None:
        connection = self.connection
        connection.close_if_health_check_failed()
        connection.ensure_connection()  # a new connection would reset what follows
        connection.commit_on_exit = True
        connection.needs_rollback = False
        connection.autocommit = False
        connection.in_atomic_block = True
        connection.atomic_blocks.append(self._atomic)

    def lock(self, bound: Bound) -> tuple[Any, ...] | None:
        """Begin the transaction with the statement that locks the record, and return its row."""
        raise NotImplementedError

    def settle_at_commit(self, bound: Bound) -> None:
        """Settle the record with this statement, which must update one row, when the transaction is committed."""
        self._settle = bound

    def is_ours(self) -> bool:
        """Is this still the transaction that began here? Asked before a rollback; a commit finds out by itself."""
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection = self.connection
        replaced = not connection.in_atomic_block  # by a new connection of the work
        if kind is not None or connection.needs_rollback or connection.closed_in_transaction or replaced:
            self._atomic.__exit__(kind, error, trace)
            if replaced and kind is None and self._settle is not None:
                raise TransactionLost
            return
        connection.atomic_blocks.pop()
        connection.in_atomic_block = False
        # As Django's own COMMIT: no wrapper of the project sees it, or raises when it is done.
        wrappers, connection.execute_wrappers = connection.execute_wrappers, []
        try:
            self._commit(self._settle)
            connection.errors_occurred = False
            connection.run_commit_hooks_on_set_autocommit_on = True
        except BaseException:
            try:
                connection.rollback()
            except Error:
                connection.close()
            raise
        finally:
            connection.execute_wrappers = wrappers
            connection.set_autocommit(True)

    def _commit(self, settle: Bound | None) -> None:
        """Settle, if there is a statement for it, and commit. Raises what the class says."""
        raise NotImplementedError


# ------------------------------------------------------------------------------------------- statements that end it
#
# They are recognised by their text, and refused before they run: only certain cases. What is not recognised here (a prepared
# statement, a procedure, the driver's own calls) is detected by the transaction's mark when the work is over.

_COMMENT = r"/\*(?:[^*]|\*(?!/))*\*/|--[^\n]*(?:\n|\Z)"
#: PostgreSQL nests comments: one with another inside is not recognised. A line also ends at a carriage return there.
_COMMENT_POSTGRESQL = r"/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/|--[^\n\r]*(?:[\n\r]|\Z)"
#: MySQL and MariaDB execute what is in /*! */ and /*M! */.
_COMMENT_MYSQL = r"/\*(?!M?!)(?:[^*]|\*(?!/))*\*/|(?:--(?=\s)|#)[^\n]*(?:\n|\Z)"


class _Texts(NamedTuple):
    """How a database's statements are recognised."""

    #: The beginning of a statement that ends the transaction.
    ending: re.Pattern[str]
    #: What is not part of a statement's own text: strings, quoted names, comments.
    aside: re.Pattern[str]
    #: Where a semicolon may be part of a statement, or a quote part of a string.
    uncertain: re.Pattern[str]


def _gap(comment: str) -> str:
    """Return what may separate two words. Query taggers put a comment there: ROLLBACK /* pay */ TO SAVEPOINT s."""
    return rf"(?:\s|{comment})+"


def _rollback(gap: str) -> str:
    """Return a ROLLBACK that is not a savepoint's: that does not end a transaction."""
    return rf"ROLLBACK(?!{gap}(?:(?:WORK|TRANSACTION){gap})?TO\b)"


def _uncertain(gap: str) -> re.Pattern[str]:
    return re.compile(rf"\\|/\*(?:[^*]|\*(?!/))*/\*|\bBEGIN{gap}(?:ATOMIC|NOT)\b", re.IGNORECASE)


def _standard(comment: str) -> _Texts:
    """Return what ends a transaction of SQLite and PostgreSQL. Only SQLite rejects a BEGIN, and does so itself."""
    gap = _gap(comment)
    ending = rf"(?:[\s;]|{comment})*(?:ABORT|COMMIT|END|PREPARE{gap}TRANSACTION|{_rollback(gap)})\b"
    return _Texts(
        ending=re.compile(ending, re.IGNORECASE),
        aside=re.compile(rf"'[^']*'|\"[^\"]*\"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|{comment}", re.DOTALL),
        uncertain=_uncertain(gap),
    )


def _mysql(comment: str) -> _Texts:
    """Return what MySQL and MariaDB commit before.

    They do not before a temporary table's statement, MariaDB's ANALYZE of a query, the DROP of a prepared statement, or
    a compound statement.
    """
    gap = _gap(comment)
    ending = (
        rf"(?:[\s;]|{comment}|/\*M?!\d*)*(?:SET{gap}STATEMENT\b[^;'\"]*?\bFOR{gap})?"
        rf"(?:ALTER|(?:ANALYZE|CHECK|OPTIMIZE|REPAIR)(?:{gap}(?:LOCAL|NO_WRITE_TO_BINLOG))?{gap}TABLE|BEGIN(?!{gap}NOT\b)|COMMIT"
        rf"|CREATE(?!(?:{gap}OR{gap}REPLACE)?{gap}TEMPORARY)|DROP(?!{gap}(?:TEMPORARY|PREPARE)\b)|FLUSH|GRANT|LOCK|RENAME|REVOKE"
        rf"|{_rollback(gap)}|SET\b(?!{gap}STATEMENT\b)[^;'\"]*(?<!(?<!@)@)\bautocommit\s*:?=\s*(?:1|ON|TRUE|DEFAULT)"
        rf"|START{gap}TRANSACTION|TRUNCATE|UNLOCK)\b"
    )
    return _Texts(
        ending=re.compile(ending, re.IGNORECASE),
        aside=re.compile(rf"'[^']*'|\"[^\"]*\"|`[^`]*`|{comment}", re.DOTALL),
        uncertain=_uncertain(gap),
    )


_POSTGRESQL = _standard(_COMMENT_POSTGRESQL)
_OTHERS = {"sqlite": _standard(_COMMENT), "mysql": _mysql(_COMMENT_MYSQL)}


def ends_transaction(sql: object, vendor: str) -> bool:
    """Does a database certainly end the open transaction when it runs `sql`?"""
    if isinstance(sql, bytes):
        sql = sql.decode(errors="replace")
    if not isinstance(sql, str):
        return False
    texts = _OTHERS.get(vendor, _POSTGRESQL)
    if texts.ending.match(sql) is not None:
        return True
    if ";" not in sql or vendor == "sqlite" or texts.uncertain.search(sql):  # SQLite takes one statement at a time
        return False
    apart = texts.aside.sub("?", sql)
    return any(texts.ending.match(statement) for statement in apart.split(";")[1:])
