"""A schema per tenant, with a table of records in each."""

from __future__ import annotations

# These settings, but for one.
from tests.proofs.neighbours.django_tenants.settings import *  # noqa: F403
from tests.proofs.neighbours.django_tenants.settings import TENANT_APPS

TENANT_APPS = [*TENANT_APPS, "django_idempotency", "django_idempotency.contrib.outbox"]
