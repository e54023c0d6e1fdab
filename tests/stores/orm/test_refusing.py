"""Which statements certainly end a transaction, and which only look as if they do."""

from __future__ import annotations

from typing import Any

from django_idempotency.stores.orm.dialects.ending import MYSQL, POSTGRESQL, SQLITE
from django_idempotency.stores.orm.guard import ends_transaction

#: Statements that end a transaction on every database.
EVERYWHERE = [
    *(
        "COMMIT",
        " rollback",
        "-- of the report\nCOMMIT;",
        "; ROLLBACK",
        "/* a * b */;\n commit",
        b"COMMIT",
    ),
    *(
        "ROLLBACK AND CHAIN",
        ";;commit work",
        "COMMIT /* shop.views.pay */ ",
        "ROLLBACK /* to */",
        "ROLLBACK -- to s\n",
    ),
]
#: Statements that do so on one database.
ENDING: dict[str, list[Any]] = {
    "sqlite": ["END", "END TRANSACTION", "/* a /* b */ COMMIT", "ROLLBACK -- pay\r TO s"],
    "postgresql": [
        *(
            "ABORT",
            "/* report */ END",
            "PREPARE TRANSACTION 'x'",
            "PREPARE /* pay */ TRANSACTION 'x'",
            "SELECT 1; ROLLBACK",
            "SELECT 1 /* ; */; commit",
        ),
        *(
            "SELECT $$a; b$$; COMMIT",
            "SELECT $x$;$x$, '' ; COMMIT",
            'SELECT ";"; END',
            "UPDATE t SET a = 'it''s'; commit",
        ),
        # comments nest, and a line ends at a carriage return
        *(
            "ROLLBACK /* a /* b */ TO c */",
            "ROLLBACK /*/*/ TO s */*/",
            "-- pay\rCOMMIT",
            "SELECT 1 -- pay\r; COMMIT",
        ),
    ],
    "mysql": [
        *("START /* pay */ TRANSACTION", "ANALYZE /* pay */ TABLE t", "SET /* pay */ autocommit=1"),
        *(
            "BEGIN",
            "START TRANSACTION",
            "CREATE TABLE t (a int)",
            "DROP INDEX i ON t",
            " truncate table x",
        ),
        *(
            "ANALYZE TABLE t",
            "ANALYZE LOCAL TABLE t",
            "CREATE OR REPLACE VIEW v AS SELECT 1",
            "LOCK TABLES t WRITE",
        ),
        *(
            "/* a * b */ # c\n-- d\n truncate t",
            "/*!50000 ROLLBACK */",
            "/*! commit*/",
            "/*M!100201 DROP TABLE t */",
        ),
        *(
            "SET autocommit=1",
            "set @@session.autocommit := ON",
            "SET SESSION autocommit = TRUE",
            "SET @a = 1, autocommit=1",
        ),
        *(
            "SET STATEMENT max_statement_time=1 FOR CREATE TABLE t (a int)",
            "SELECT 1; /*!50000 ROLLBACK */",
        ),
        # executed, though it looks like a comment
        *("ROLLBACK /*!; */ TO s", "ROLLBACK /*M!; */ TO s", "DROP /*!TABLE t -- */ TEMPORARY\n"),
        *("ROLLBACK # TO s", "ROLLBACK -- pay\r TO s", "START # pay\n TRANSACTION"),
        *("SELECT `;` # ;\n; COMMIT", 'SELECT ";"; rollback', "SELECT 1; SET autocommit=1"),
    ],
}
#: Statements that a guard allows. If only the server can be certain, nothing is refused: the
#: transaction's mark decides.
INNOCENT_EVERYWHERE = [
    *(
        "SAVEPOINT s",
        "ROLLBACK TO SAVEPOINT s",
        "ROLLBACK WORK TO s",
        "ROLLBACK TRANSACTION TO SAVEPOINT s",
        "",
        ";",
        None,
    ),
    # what query taggers make of a savepoint's statement
    *(
        "ROLLBACK /* shop.views.pay */ TO SAVEPOINT s",
        "ROLLBACK/**/WORK /* a */ TO s",
        "ROLLBACK -- pay\n TO SAVEPOINT s",
    ),
    *(
        "/* COMMIT */ SELECT 1",
        "SELECT 'COMMIT'",
        "SELECT '; COMMIT'",
        'SELECT "; COMMIT"',
        "SELECT 1; -- COMMIT",
        7,
    ),
    *(
        "SELECT 1 /* ; COMMIT */",
        "UPDATE locked SET a = 1;",
        "SELECT 1; SELECT 2",
        "SELECT committed FROM t",
    ),
]
INNOCENT: dict[str, list[Any]] = {
    "sqlite": [
        *("CREATE TABLE t (a)", "CREATE TRIGGER t INSERT ON x BEGIN SELECT 1; END"),
        *("ROLLBACK /* a /* b */ TO s", "ROLLBACK /*! pay */ TO s"),
    ],
    "postgresql": [
        *(
            "CREATE TABLE t (a int)",
            "SELECT $$; COMMIT$$",
            "DO $x$ BEGIN PERFORM 1; END $x$",
            "BEGIN",
        ),
        *("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END", r"SELECT E'\'; COMMIT --'"),
        *(
            "SELECT 1 /* /* */ ; COMMIT */",
            "SELECT 1; ROLLBACK TO SAVEPOINT s",
            "PREPARE p AS SELECT 1",
        ),
        *(
            "ROLLBACK -- pay\r TO SAVEPOINT s",
            "ROLLBACK /*! pay */ TO s",
            "/* a /* b */ COMMIT */ SELECT 1",
        ),
        "CREATE FUNCTION f() RETURNS int BEGIN /* pay */ ATOMIC SELECT 1; END",
    ],
    "mysql": [
        *(
            "create temporary table t (a int)",
            "CREATE OR REPLACE TEMPORARY TABLE t (a int)",
            "DROP TEMPORARY TABLE t",
        ),
        *(
            "BEGIN /* pay */ NOT ATOMIC SELECT 1; END",
            "SET /* pay */ STATEMENT a=1 FOR UPDATE t SET autocommit=1",
        ),
        *(
            "ROLLBACK # pay\n TO SAVEPOINT s",
            "BEGIN # pay\n NOT ATOMIC SELECT 1; COMMIT; END",
            "ROLLBACK /*+ a */ TO s",
        ),
        "ROLLBACK /* a /* b */ TO s",
        *(
            "DROP PREPARE s",
            "ANALYZE SELECT 1",
            "ANALYZE FORMAT=JSON SELECT 1",
            "BEGIN NOT ATOMIC SELECT 1; END",
        ),
        *(
            "SET @autocommit = 1",
            "CREATE /* t */ TEMPORARY TABLE t (a INT)",
            "DROP /* t */ TEMPORARY TABLE t",
        ),
        *(
            "SET autocommit=0",
            "SET @a = 'autocommit=1'",
            "UPDATE t SET a = 'SET autocommit=1'",
            r"SELECT '\'; COMMIT'",
        ),
        *(
            "SET STATEMENT innodb_lock_wait_timeout=1 FOR UPDATE t SET a = 1",
            "/*!50000 SELECT 1 */",
            "SELECT 1 # ; COMMIT",
        ),
        "SET STATEMENT max_statement_time=1 FOR SELECT 'FOR DROP'",
    ],
}


OF_VENDOR = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mysql": MYSQL}


def ending(everywhere: list[Any], apart: dict[str, list[Any]]) -> list[tuple[str, Any, bool]]:
    """Return each statement with its database, and whether that certainly ends the transaction."""
    cases = [(vendor, sql) for vendor, ours in apart.items() for sql in everywhere + ours]
    return [(vendor, sql, ends_transaction(sql, OF_VENDOR[vendor])) for vendor, sql in cases]


def test_what_ends_a_transaction() -> None:
    """A statement that certainly ends the transaction is refused, in any form."""
    assert [case for case in ending(EVERYWHERE, ENDING) if not case[2]] == []


def test_what_does_not() -> None:
    """A statement that a view may send is never refused for its appearance."""
    assert [case for case in ending(INNOCENT_EVERYWHERE, INNOCENT) if case[2]] == []
