"""A pytest plugin for other projects' suites: it installs the package in their settings, and gives
their requests keys.

It runs in an environment of its own, from a folder of its own: the suites also have a package
`tests`. FOREIGN_MODE says what it does, FOREIGN_COUNTS names the file for its counts.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import django
from django.conf import settings
from django.test.client import AsyncRequestFactory, RequestFactory

MODE = os.environ.get("FOREIGN_MODE", "without")
FAST_PASSWORDS = os.environ.get("FOREIGN_FAST_PASSWORDS") == "1"
ATOMIC_REQUESTS = os.environ.get("FOREIGN_ATOMIC_REQUESTS") == "1"
APP = "django_idempotency"
MIDDLEWARE = "django_idempotency.middleware.IdempotencyMiddleware"
SAFE = {"GET", "HEAD", "OPTIONS", "TRACE"}
EVENTS = (
    "claimed",
    "taken_over",
    "replayed",
    "busy",
    "mismatched",
    "unavailable",
    "completed",
    "released",
    "lost",
)

counts: Counter[str] = Counter()
#: A signal holds its receivers weakly.
_receivers: list[Any] = []


def before_setup() -> None:
    """Change the suite's settings before Django reads them: what the suite is run with, and in two
    modes our own.
    """
    set_up = django.setup

    def setup(set_prefix: bool = True) -> None:
        if FAST_PASSWORDS:
            settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
        if ATOMIC_REQUESTS:
            settings.DATABASES["default"]["ATOMIC_REQUESTS"] = True
        if MODE == "without":
            return set_up(set_prefix)
        if APP not in settings.INSTALLED_APPS:
            settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, APP]
            settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
            # Clients without a login are guarded, too: here no key is sent twice.
            settings.IDEMPOTENCY = {"ANONYMOUS": "shared"}
        set_up(set_prefix)
        listen()
        return None

    django.setup = setup


def listen() -> None:
    """Count each event of the package, and make it guard what it leaves alone by default: the views
    of allauth.
    """
    from django_idempotency import signals
    from django_idempotency.http import kinds

    kinds.ADAPTED = ()

    for event in EVENTS:

        def count(event: str = event, **kwargs: object) -> None:
            counts[event] += 1

        _receivers.append(count)
        getattr(signals, event).connect(count, dispatch_uid=("foreign", event))


def give_keys(factory: type) -> None:
    """Make a factory, and the clients made from it, send a fresh key with each unsafe request."""
    generic = factory.generic  # type: ignore[attr-defined]

    def keyed(self: Any, method: str, *args: Any, headers: Any = None, **kwargs: Any) -> Any:
        if str(method).upper() not in SAFE:
            counts["keyed"] += 1
            headers = {**(headers or {}), "Idempotency-Key": str(uuid4())}
        return generic(self, method, *args, headers=headers, **kwargs)

    factory.generic = keyed  # type: ignore[attr-defined]


before_setup()
if MODE == "keyed":
    give_keys(RequestFactory)
    give_keys(AsyncRequestFactory)


def pytest_sessionfinish() -> None:
    if path := os.environ.get("FOREIGN_COUNTS"):
        Path(path).write_text(json.dumps(counts), encoding="utf-8")
