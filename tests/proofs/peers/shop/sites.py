"""The project under each package: where the view is, and what guards it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple
from uuid import uuid4

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import F
from django.http.response import HttpResponseBase
from django.test import Client, override_settings

from django_idempotency.testing.clock import elapse

from .models import Charge
from .settings import LOCK
from .views import stage


def age_ours(by: timedelta) -> None:
    elapse(by.total_seconds())


def age_drf_idempotency(by: timedelta) -> None:
    from drf_idempotency.models import IdempotencyRecord

    IdempotencyRecord.objects.update(expires_at=F("expires_at") - by)


def age_by_created(app: str) -> Callable[[timedelta], None]:
    def age(by: timedelta) -> None:
        keys = apps.get_model(app, "IdempotencyKey")
        keys._default_manager.update(created_at=F("created_at") - by)

    return age


class Site(NamedTuple):
    path: str
    middleware: tuple[str, ...] = ()
    #: The setting IDEMPOTENCY.
    terms: Mapping[str, Any] = {}
    #: Make all records older.
    age: Callable[[timedelta], None] = age_ours


SITES = {
    "ours": Site("/ours/"),
    "ours by middleware": Site("/bare/", ("django_idempotency.middleware.IdempotencyMiddleware",)),
    "drf-idempotency": Site(
        "/bare/",
        ("drf_idempotency.middleware.IdempotencyMiddleware",),
        {
            "BACKEND": "drf_idempotency.backends.database.DatabaseBackend",
            "LOCK_TTL_SECONDS": LOCK,
        },
        age_drf_idempotency,
    ),
    "djangorestframework-idempotency-key": Site(
        "/by-method/",
        ("rest_framework_idempotency_key.middleware.IdempotencyKeyMiddleware",),
        {},
        age_by_created("rest_framework_idempotency_key"),
    ),
    "drf-idempotencykey": Site("/by-mixin/", age=age_by_created("drf_idempotencykey")),
    "idemkit": Site("/idemkit/"),
}


class Shop:
    """One site, with no charges yet, and a key that nobody has used."""

    def __init__(self, name: str, site: Site) -> None:
        self.name = name
        self.site = site
        self.key = str(uuid4())

    @cached_property
    def clients(self) -> dict[str, Client]:
        """A client for each of two users, and one who has not logged in."""
        made = {"": Client(raise_request_exception=False)}
        for name in ("alice", "bob"):
            made[name] = Client(raise_request_exception=False)
            made[name].force_login(User.objects.get_or_create(username=name)[0])
        return made

    def send(
        self,
        body: str = '{"amount": 5, "note": ""}',
        *,
        user: str = "alice",
        key: str | None = "",
        at: str = "",
        method: str = "POST",
    ) -> HttpResponseBase:
        """Send a request under the shop's key, another one, or none."""
        headers = {} if key is None else {"Idempotency-Key": key or self.key}
        return self.clients[user].generic(
            method, self.site.path + at, body, "application/json", headers=headers
        )

    def charges(self) -> int:
        return Charge.objects.count()


@contextmanager
def opened(name: str, **terms: Any) -> Iterator[Shop]:
    """Open a site. `terms` are added to the setting IDEMPOTENCY."""
    site = SITES[name]
    stage.reset()
    with override_settings(
        MIDDLEWARE=[*settings.MIDDLEWARE, *site.middleware],
        IDEMPOTENCY={**site.terms, **terms},
    ):
        yield Shop(name, site)


def emptied() -> None:
    """Delete what a case has left."""
    for model in apps.get_models():
        if model.__name__ in {"Charge", "IdempotencyKey", "IdempotencyRecord", "User"}:
            model._default_manager.all().delete()
