"""Statements that end a transaction, recognised by their text so that they are refused before they run.

Only certain cases are refused. What is not recognised here (a prepared statement, a procedure, the driver's own calls)
is detected by the transaction's mark when the work is over.
"""

from __future__ import annotations

import re

_COMMENT = r"/\*(?:[^*]|\*(?!/))*\*/"
#: What may precede a statement.
_BEFORE = rf"(?:[\s;]|{_COMMENT}|--[^\n]*(?:\n|\Z))*"
_BEFORE_MYSQL = r"(?:[\s;]|/\*(?!M?!)(?:[^*]|\*(?!/))*\*/|/\*M?!\d*|(?:--|#)[^\n]*(?:\n|\Z))*"
_ROLLBACK = r"ROLLBACK(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b)"

#: What may separate two words.
_GAP = rf"(?:\s|{_COMMENT})+"

#: A savepoint's own statements do not end a transaction. Of the three databases only
#: SQLite rejects a BEGIN, and does so itself.
_ENDING = re.compile(rf"{_BEFORE}(?:ABORT|COMMIT|END|PREPARE\s+TRANSACTION|{_ROLLBACK})\b", re.IGNORECASE)

#: MySQL and MariaDB commit before these; but not before a temporary table's, MariaDB's ANALYZE of a query, the DROP of
#: a prepared statement, or a compound statement.
_ENDING_MYSQL = re.compile(
    rf"{_BEFORE_MYSQL}(?:SET\s+STATEMENT\b[^;'\"]*?\bFOR\s+)?"
    r"(?:ALTER|(?:ANALYZE|CHECK|OPTIMIZE|REPAIR)(?:\s+(?:LOCAL|NO_WRITE_TO_BINLOG))?\s+TABLE|BEGIN(?!\s+NOT\b)|COMMIT"
    rf"|CREATE(?!(?:{_GAP}OR{_GAP}REPLACE)?{_GAP}TEMPORARY)|DROP(?!{_GAP}(?:TEMPORARY|PREPARE)\b)|FLUSH|GRANT|LOCK|RENAME|REVOKE"
    rf"|{_ROLLBACK}|SET\b(?!\s+STATEMENT\b)[^;'\"]*(?<!(?<!@)@)\bautocommit\s*:?=\s*(?:1|ON|TRUE|DEFAULT)|START\s+TRANSACTION|TRUNCATE"
    r"|UNLOCK)\b",
    re.IGNORECASE,
)

#: What is not part of a statement's own text: strings, quoted names, comments. An executable comment of MySQL is text.
_ASIDE = re.compile(rf"'[^']*'|\"[^\"]*\"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|{_COMMENT}|--[^\n]*(?:\n|\Z)", re.DOTALL)
_ASIDE_MYSQL = re.compile(
    r"'[^']*'|\"[^\"]*\"|`[^`]*`|/\*(?!M?!)(?:[^*]|\*(?!/))*\*/|(?:--(?=\s)|#)[^\n]*(?:\n|\Z)", re.DOTALL
)
#: Where a semicolon may be part of a statement, or a quote part of a string.
_UNCERTAIN = re.compile(r"\\|/\*(?:[^*]|\*(?!/))*/\*|\bBEGIN\s+(?:ATOMIC|NOT)\b", re.IGNORECASE)


def ends_transaction(sql: object, vendor: str) -> bool:
    """Does a database certainly end the open transaction when it runs `sql`?"""
    if isinstance(sql, bytes):
        sql = sql.decode(errors="replace")
    if not isinstance(sql, str):
        return False
    mysql = vendor == "mysql"
    ending = _ENDING_MYSQL if mysql else _ENDING
    if ending.match(sql) is not None:
        return True
    if ";" not in sql or vendor == "sqlite" or _UNCERTAIN.search(sql):  # SQLite takes one statement at a time
        return False
    apart = (_ASIDE_MYSQL if mysql else _ASIDE).sub("?", sql)
    return any(ending.match(statement) for statement in apart.split(";")[1:])
