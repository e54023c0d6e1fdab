"""Statements that end a transaction.

They are recognised by their text, and refused before they run: only certain cases.

What is not recognised here (a prepared statement, a procedure, the driver's own calls) is detected
by the transaction's mark when the work is over.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_COMMENT = r"/\*(?:[^*]|\*(?!/))*\*/|--[^\n]*(?:\n|\Z)"
#: PostgreSQL nests comments: one with another inside is not recognised. A line also ends at a
#: carriage return there.
_COMMENT_POSTGRESQL = r"/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/|--[^\n\r]*(?:[\n\r]|\Z)"
#: MySQL and MariaDB execute what is in /*! */ and /*M! */.
_COMMENT_MYSQL = r"/\*(?!M?!)(?:[^*]|\*(?!/))*\*/|(?:--(?=\s)|#)[^\n]*(?:\n|\Z)"


class Ending(NamedTuple):
    """How a database's statements that end a transaction are recognised."""

    #: The beginning of one.
    statement: re.Pattern[str]
    #: What is not part of a statement's own text: strings, quoted names, comments.
    aside: re.Pattern[str]
    #: Where a semicolon may be part of a statement, or a quote part of a string.
    uncertain: re.Pattern[str]
    #: May one text hold several statements?
    several: bool = True


def _gap(comment: str) -> str:
    """Return what may separate two words.

    Query taggers put a comment there: ROLLBACK /* pay */ TO SAVEPOINT s.
    """
    return rf"(?:\s|{comment})+"


def _rollback(gap: str) -> str:
    """Return a ROLLBACK that is not a savepoint's: that does not end a transaction."""
    return rf"ROLLBACK(?!{gap}(?:(?:WORK|TRANSACTION){gap})?TO\b)"


def _uncertain(gap: str) -> re.Pattern[str]:
    return re.compile(rf"\\|/\*(?:[^*]|\*(?!/))*/\*|\bBEGIN{gap}(?:ATOMIC|NOT)\b", re.IGNORECASE)


def _standard(comment: str) -> Ending:
    """Return what ends a transaction of SQLite and PostgreSQL.

    Only SQLite rejects a BEGIN, and does so itself.
    """
    gap = _gap(comment)
    ending = rf"(?:[\s;]|{comment})*(?:ABORT|COMMIT|END|PREPARE{gap}TRANSACTION|{_rollback(gap)})\b"
    return Ending(
        statement=re.compile(ending, re.IGNORECASE),
        aside=re.compile(
            rf"'[^']*'|\"[^\"]*\"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|{comment}", re.DOTALL
        ),
        uncertain=_uncertain(gap),
    )


def _mysql(comment: str) -> Ending:
    """Return what MySQL and MariaDB commit before.

    They do not before a temporary table's statement, MariaDB's ANALYZE of a query, the DROP of a
    prepared statement, or a compound statement.
    """
    gap = _gap(comment)
    ending = (
        rf"(?:[\s;]|{comment}|/\*M?!\d*)*(?:SET{gap}STATEMENT\b[^;'\"]*?\bFOR{gap})?"
        rf"(?:ALTER|(?:ANALYZE|CHECK|OPTIMIZE|REPAIR)(?:{gap}(?:LOCAL|NO_WRITE_TO_BINLOG))?{gap}TABLE|BEGIN(?!{gap}NOT\b)|COMMIT"
        rf"|CREATE(?!(?:{gap}OR{gap}REPLACE)?{gap}TEMPORARY)|DROP(?!{gap}(?:TEMPORARY|PREPARE)\b)|FLUSH|GRANT|LOCK|RENAME|REVOKE"
        rf"|{_rollback(gap)}|SET\b(?!{gap}STATEMENT\b)[^;'\"]*(?<!(?<!@)@)\bautocommit\s*:?=\s*(?:1|ON|TRUE|DEFAULT)"
        rf"|START{gap}TRANSACTION|TRUNCATE|UNLOCK)\b"
    )
    return Ending(
        statement=re.compile(ending, re.IGNORECASE),
        aside=re.compile(rf"'[^']*'|\"[^\"]*\"|`[^`]*`|{comment}", re.DOTALL),
        uncertain=_uncertain(gap),
    )


POSTGRESQL = _standard(_COMMENT_POSTGRESQL)
SQLITE = _standard(_COMMENT)._replace(several=False)
MYSQL = _mysql(_COMMENT_MYSQL)


def ends_within(sql: object, ending: Ending) -> bool:
    """Does one of several statements, or what is not text, certainly end the open transaction?"""
    if isinstance(sql, bytes):
        sql = sql.decode(errors="replace")
    if not isinstance(sql, str):
        return False
    if ending.statement.match(sql) is not None:
        return True
    if not ending.several or ending.uncertain.search(sql):
        return False
    apart = ending.aside.sub("?", sql)
    return any(ending.statement.match(statement) for statement in apart.split(";")[1:])
