"""Checks of the caches that `fresh_keys` and `suspect` use."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from django.conf import settings
from django.core.checks import CheckMessage

from .. import conf
from ..core.policy import Resolved
from .catalogue import closest, finding, shown

#: The end of a backend's name → what becomes of what it is given.
_UNFIT = {
    "LocMemCache": "each process counts and remembers on its own",
    "DummyCache": "nothing is counted or remembered",
    "DatabaseCache": "what it counts and remembers is rolled back with a request, and two at once count as one",
    "FileBasedCache": "two that count at once count as one",
}


def cache_errors(name: str, terms: Resolved) -> Iterator[CheckMessage]:
    """Yield what keeps the policy of a view from counting keys, or from remembering facts."""
    if terms.fresh_keys is not None:
        alias = getattr(settings, "RATELIMIT_USE_CACHE", "default")
        if find_spec("django_ratelimit") is None:
            yield finding("E095", view=name)
        elif alias not in settings.CACHES:
            yield finding("E096", view=name, alias=shown(alias), close=closest(str(alias), settings.CACHES))
        else:
            yield from _unfit(name, "fresh_keys", alias)
    if terms.suspect is not None and conf.get("CACHE") in settings.CACHES:
        yield from _unfit(name, "suspect", conf.get("CACHE"))


def _unfit(name: str, field: str, alias: str) -> Iterator[CheckMessage]:
    """In development one process is usual."""
    backend = str(settings.CACHES[alias].get("BACKEND", "")).rpartition(".")[2]
    if backend in _UNFIT and not settings.DEBUG:
        yield finding("W093", view=name, field=field, alias=alias, backend=backend, effect=_UNFIT[backend])
