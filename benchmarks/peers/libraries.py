"""The compared packages: how each is set up, and how a request is sent through it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import NamedTuple
from uuid import uuid4

from django.conf import settings
from django.contrib.auth.models import User
from django.http.response import HttpResponseBase
from django.test import RequestFactory
from django.utils.functional import cached_property
from rest_framework.authtoken.models import Token

from benchmarks.entry_points import LABELLED, Answer, handler

from .settings import OURS, REDIS_URL


class Library(NamedTuple):
    name: str
    package: str
    path: str
    middleware: tuple[str, ...] = ()
    in_redis: bool = False

    def __str__(self) -> str:
        named = (
            "this package"
            if self.package == "django-idempotency"
            else f"{self.package} {version(self.package)}"
        )
        return f"{named}, {self.name}"

    def key(self) -> str:
        """Return a key that is not in use, of the form that all of them take."""
        from .backends import IN_REDIS

        prefix = IN_REDIS if self.package == "drf-idempotency" and self.in_redis else ""
        return f"{prefix}{uuid4()}"


BARE = Library("bare", "django", "/rest/work/")
THEIRS = ("drf_idempotency.middleware.IdempotencyMiddleware",)
BY_METHOD = ("rest_framework_idempotency_key.middleware.IdempotencyKeyMiddleware",)
LIBRARIES = (
    Library("atomic", "django-idempotency", "/rest/atomic/"),
    Library("Redis", "django-idempotency", "/rest/lease/", in_redis=True),
    Library("database", "drf-idempotency", "/rest/work/", THEIRS),
    Library("Redis", "drf-idempotency", "/rest/work/", THEIRS, in_redis=True),
    Library("database", "djangorestframework-idempotency-key", "/rest/by-method/", BY_METHOD),
    Library("database", "drf-idempotencykey", "/rest/by-mixin/"),
    Library("database", "idemkit", "/rest/idemkit/"),
    Library("Redis", "idemkit", "/rest/idemkit-redis/", in_redis=True),
)


class Client:
    """A user with a token."""

    def __init__(self, name: str) -> None:
        user, _ = User.objects.get_or_create(username=name)
        token, _ = Token.objects.get_or_create(user=user)
        self._authorization: dict[str, str] = {"Authorization": f"Token {token.key}"}

    def send(
        self, answer: Answer, library: Library, key: str | None, *, token: bool = True
    ) -> HttpResponseBase:
        headers = {
            **(self._authorization if token else {}),
            **({"Idempotency-Key": key} if key else {}),
        }
        request = RequestFactory().post(
            library.path, LABELLED, content_type="application/json", headers=headers
        )
        response = answer(request)
        response.close()
        return response


class Answers:
    """A handler for each library, with its middleware."""

    @cached_property
    def _made(self) -> dict[tuple[str, ...], Answer]:
        return {library.middleware: handler(*library.middleware) for library in (BARE, *LIBRARIES)}

    def __getitem__(self, library: Library) -> Answer:
        return self._made[library.middleware]


@contextmanager
def prepared() -> Iterator[None]:
    """Give drf-idempotency its settings and this package the others; create what idemkit needs, and
    close it again.
    """
    from drf_idempotency.settings import get_setting
    from idemkit.core.sync_bridge import run_sync

    from . import backends, views

    get_setting("BACKEND")  # it keeps what it has read
    settings.IDEMPOTENCY = OURS
    subprocess.run(
        [sys.executable, "-m", "idemkit.cli", "init-pg", views.address()],
        check=True,
        capture_output=True,
    )
    try:
        yield
    finally:
        run_sync(views.DATABASE.aclose())
        run_sync(views.REDIS.aclose())
        import redis

        with redis.Redis.from_url(REDIS_URL) as client:
            for prefix in (backends.PREFIX, "bench-peers"):
                for name in client.scan_iter(f"*{prefix}*", count=1000):
                    client.delete(name)
