"""What checks say about the databases."""

from __future__ import annotations

from ...stores.check_messages import SILENCE

DATABASES: dict[str, tuple[str, str]] = {
    "W001": (
        (
            'The database "%(other)s" is not covered by "atomic", whose records are in "%(using)s": '
            "what a view writes there is not rolled back with it."
        ),
        (
            'If it is a replica, type DATABASES["%(other)s"]["TEST"] = {"MIRROR": "%(using)s"}. Where a view writes there, '
            f'type guarantee="lease" in its policy. Then {SILENCE}.'
        ),
    ),
    "W002": (
        'DATABASE_ROUTERS keep the table of django_idempotency out of the database "%(using)s", where a store needs it.',
        (
            'Let allow_migrate("%(using)s", "django_idempotency") return True in your router, or type '
            '"OPTIONS": {"using": …} with a database where it does.'
        ),
    ),
    "W069": (
        (
            "django_idempotency is in TENANT_APPS and not in SHARED_APPS: a keyed request to the public schema finds no "
            "table, and gets 503."
        ),
        (
            'Add "django_idempotency" to SHARED_APPS, too, and run manage.py migrate_schemas --shared. If nothing guarded '
            f"runs in the public schema, type {SILENCE}."
        ),
    ),
    "W080": (
        (
            'Migrations of django_idempotency are not applied to the database "%(using)s": until they are, requests with a key '
            "get 503."
        ),
        "Type python manage.py migrate django_idempotency --database=%(using)s",
    ),
    "W079": (
        (
            'DATABASES["%(using)s"] takes its connections from a pool of its own ("%(engine)s"), which the heartbeat of "lease" '
            "cannot bypass: while requests hold all of it, the leases of live owners expire, and their work runs again."
        ),
        (
            'Type "ENGINE": "django.db.backends.postgresql" and "OPTIONS": {"pool": True}, whose pool it bypasses; or give the '
            f"pool two connections more than a process has threads, and {SILENCE}."
        ),
    ),
}
