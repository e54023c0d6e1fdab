"""A fresh database, and the users of the demo."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Tokens for the API; a password for the admin's pages."""

    alice: str
    bob: str
    admin: str
    password: str
    #: The admin page that lists the records.
    records: str
    #: Seconds after which a dead worker's key may be taken over.
    claim_lease: float


def prepare(database: Path) -> Cast:
    """Create the database and its users.

    From then on the environment names it, for the server too.
    """
    figures = database.with_suffix(".metrics")  # a file for each worker
    figures.mkdir()
    os.environ.update(
        DJANGO_SETTINGS_MODULE="testproject.settings",
        DATABASE="sqlite",
        DATABASE_NAME=str(database),
    )
    os.environ.update(
        METRICS="django_idempotency.contrib.metrics.prometheus.PrometheusMeter",
        PROMETHEUS_MULTIPROC_DIR=str(figures),
    )
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.db import connections
    from django.urls import reverse
    from rest_framework.authtoken.models import Token

    from django_idempotency import conf

    call_command("migrate", verbosity=0)
    password = secrets.token_urlsafe(9)
    admin = User.objects.create_superuser("admin", password=password)
    alice, bob = (User.objects.create_user(name) for name in ("alice", "bob"))
    cast = Cast(
        alice=Token.objects.create(user=alice).key,
        bob=Token.objects.create(user=bob).key,
        admin=Token.objects.create(user=admin).key,
        password=password,
        records=reverse("admin:django_idempotency_idempotencyrecord_changelist"),
        claim_lease=conf.get("CLAIM_LEASE"),
    )
    os.environ["DEMO_TOKEN"] = cast.alice  # for the page at /
    connections.close_all()
    return cast
