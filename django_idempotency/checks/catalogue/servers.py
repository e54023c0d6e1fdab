"""What `manage.py check --deploy` says about databases and servers."""

from __future__ import annotations

from ...stores.check_messages import SILENCE, STORE_CHECKS

DEPLOYED: dict[str, tuple[str, str]] = {
    "E050": (
        'Migrations of django_idempotency are not applied to the database "%(using)s".',
        "Type python manage.py migrate django_idempotency --database=%(using)s",
    ),
    "E051": STORE_CHECKS["E051"],
    "E052": STORE_CHECKS["E052"],
    "E053": STORE_CHECKS["E053"],
    "W050": (
        'The database "%(using)s" is not responding, so its settings were not checked: %(error)s.',
        "Start it, then type python manage.py check --deploy again.",
    ),
    "W051": (
        (
            'PostgreSQL ("%(using)s") does not check whether a client is still there while a statement runs: '
            "the key of a dead worker stays locked until its statement ends."
        ),
        "Type %(options)s, or in SQL: ALTER ROLE %(user)s SET client_connection_check_interval = '1s'.",
    ),
    "W052": (
        'PostgreSQL ("%(using)s") lets a transaction stay idle forever: a worker that hangs in its view holds its key.',
        (
            "Type %(options)s, or in SQL: ALTER ROLE %(user)s SET idle_in_transaction_session_timeout = '60s' "
            "(longer than your slowest call to a provider)."
        ),
    ),
    "I053": (
        (
            'PostgreSQL ("%(using)s") drops a silent client only after %(idle)s s: '
            "the key of a vanished host stays locked that long."
        ),
        "Type %(options)s, or in SQL, for each: ALTER ROLE %(user)s SET tcp_keepalives_idle = 30.",
    ),
    "I054": (
        (
            'DATABASES["%(using)s"]["OPTIONS"] sets no limit for a silent PostgreSQL server: '
            "a worker waits for it until TCP gives up, which may take hours."
        ),
        "Type %(options)s.",
    ),
    "W078": (
        (
            'A process may open %(needed)s connections to DATABASES["%(using)s"] (a pool of %(size)s, and two outside it: '
            'for the heartbeat, and for settles that are retried), but PostgreSQL grants "%(user)s" only %(limit)s.'
        ),
        (
            'Type DATABASES["%(using)s"]["OPTIONS"]["pool"] = {"min_size": 1, "max_size": %(fits)s} or less, since all your '
            "processes share that limit; or raise max_connections, or the limit in ALTER ROLE %(user)s CONNECTION LIMIT."
        ),
    ),
    "W055": (
        (
            '%(server)s ("%(using)s") lets a transaction stay idle for %(limit)s: '
            "a worker that hangs, or whose host vanished, holds its key that long."
        ),
        (
            'Type DATABASES["%(using)s"]["OPTIONS"]["init_command"] = "SET SESSION %(variable)s=60" '
            '(longer than your slowest call to a provider), and "CONN_HEALTH_CHECKS": True beside OPTIONS.'
        ),
    ),
    "W056": (
        (
            '%(server)s ("%(using)s") has innodb_rollback_on_timeout=ON: a lock timeout that a view catches rolls back '
            'half of its transaction, including the lock on its key, and "atomic" cannot detect it.'
        ),
        "Type innodb_rollback_on_timeout=OFF under [mysqld] in my.cnf, and restart the server.",
    ),
    "W057": (
        (
            'DATABASES["%(using)s"]["OPTIONS"] has no %(missing)s: '
            "a worker waits for a server that vanished until TCP gives up, which may take hours."
        ),
        (
            'Type DATABASES["%(using)s"]["OPTIONS"].update(connect_timeout=5, read_timeout=60, write_timeout=60), '
            "with a read_timeout above your slowest statement."
        ),
    ),
    "W058": (
        'The records are in SQLite ("%(using)s"), which has one writer: requests with different keys queue for it.',
        (
            'Type DATABASES["%(using)s"]["ENGINE"] = "django.db.backends.postgresql" for more than one worker; '
            f"if one is enough, {SILENCE}."
        ),
    ),
    "W059": (
        "The environment has IDEMPOTENCY_DISABLED=%(value)s: every retry runs again.",
        "Type IDEMPOTENCY_DISABLED=0, or take it out of the environment of every production service.",
    ),
    "W060": (
        'The store "%(alias)s" (%(backend)s) is not responding, so its server was not checked: %(error)s.',
        (
            "Start it, or allow this host and its credentials to read the server's settings; "
            "then type python manage.py check --deploy again."
        ),
    ),
    "W061": STORE_CHECKS["W061"],
    "W062": STORE_CHECKS["W062"],
    "W063": STORE_CHECKS["W063"],
}
