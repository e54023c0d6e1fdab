"""Events and references of a key, and a request under it."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from django_idempotency.contrib.audit.models import AuditEvent, Reference

#: Statements commit, as on a server. Afterwards only these tables are emptied, which is faster than
#: emptying all.
committed = pytest.mark.django_db(
    transaction=True,
    available_apps=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "rest_framework.authtoken",
        "django_idempotency",
        "django_idempotency.contrib.at_rest",
        "django_idempotency.contrib.audit",
        "testproject.payments",
    ],
)
BODY = {"amount": 2499, "currency": "inr", "card": "tok_visa"}


def post(client: APIClient, key: str = "k-1", path: str = "/api/charges/", **body: Any) -> Any:
    return client.post(
        path, {**BODY, **body}, headers={"Idempotency-Key": key, "X-Request-ID": f"req-{key}"}
    )


def events(**fields: Any) -> list[str]:
    """Return the names of the events in order."""
    return list(AuditEvent.objects.filter(**fields).order_by("pk").values_list("event", flat=True))


def references() -> list[tuple[str, str]]:
    return list(Reference.objects.order_by("pk").values_list("kind", "value"))
