"""Checks that fresh keys can be counted and suspects remembered: in a cache that all processes
share.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from django.conf import settings
from django.core.checks import CheckMessage

from ... import conf
from ...core.policy import Resolved
from ...stores.check_messages import Finding, closest, shown


class E095(Finding):
    """The fresh_keys of %(view)s cannot be counted: django-ratelimit is not installed, and a
    request with a key raises.

    Type python -m pip install "django-idempotency[throttle]", or leave fresh_keys out.
    """


class E096(Finding):
    """The fresh_keys of %(view)s cannot be counted: RATELIMIT_USE_CACHE is %(alias)s, which CACHES
    does not have.

    Type RATELIMIT_USE_CACHE = "%(close)s", or add the alias to CACHES.
    """


class W093(Finding):
    """The policy of %(view)s has %(field)s, which needs a cache that all processes share and that
    counts in one step, and CACHES["%(alias)s"] is a %(backend)s: %(effect)s.

    Type CACHES["%(alias)s"] = {"BACKEND": "django.core.cache.backends.redis.RedisCache",
    "LOCATION": "redis://127.0.0.1:6379/1"}. If there is only one process, %(silence)s.
    """


class W104(Finding):
    """The fresh_keys of %(view)s count all clients without a login as one, since they share a scope
    (anonymous="shared"): one of them can use up the limit of all.

    Type fresh_keys_by= a function that returns what tells them apart, such as the address that your
    proxy has verified. If one limit for all of them is meant, %(silence)s.
    """


#: The end of a backend's name → what becomes of what it is given.
_UNFIT = {
    "LocMemCache": "each process counts and remembers on its own",
    "DummyCache": "nothing is counted or remembered",
    "DatabaseCache": "what it counts and remembers is rolled back with a request, and two at "
    "once count as "
    "one",
    "FileBasedCache": "two that count at once count as one",
}


def problems(name: str, terms: Resolved) -> Iterator[CheckMessage]:
    """Yield what keeps a policy from counting keys, or from remembering facts."""
    if terms.fresh_keys is not None and terms.fresh_keys_by is None and terms.anonymous == "shared":
        yield W104(view=name)
    if terms.fresh_keys is not None:
        alias = getattr(settings, "RATELIMIT_USE_CACHE", "default")
        if find_spec("django_ratelimit") is None:
            yield E095(view=name)
        elif alias not in settings.CACHES:
            yield E096(view=name, alias=shown(alias), close=closest(str(alias), settings.CACHES))
        else:
            yield from _unfit(name, "fresh_keys", alias)
    if terms.suspect is not None:
        yield from _unfit(name, "suspect", conf.get("CACHE"))


def _unfit(name: str, field: str, alias: str) -> Iterator[CheckMessage]:
    """In development one process is usual."""
    backend = str(settings.CACHES[alias].get("BACKEND", "")).rpartition(".")[2]
    if backend in _UNFIT and not settings.DEBUG:
        yield W093(view=name, field=field, alias=alias, backend=backend, effect=_UNFIT[backend])
