"""Checks of policies, of views and of guarded functions: the plan compiles, and the caches that it needs are fit for it.

Of functions, only those of imported modules are seen.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model

from .. import conf
from ..core.policy import Policy, Resolved
from ..core.records import Guarantee
from ..errors import ConfigurationError
from ..functions.call import plan_of as function_plan_of
from ..functions.terms import declared
from ..http.plan import plan_of
from ..stores.check_messages import Finding, closest, shown
from .settings import after_settings


class E035(Finding):
    """The policy of %(view)s cannot be kept: %(error)s

    Type what it says in the policy of %(view)s, or change the setting.
    """


class E095(Finding):
    """The fresh_keys of %(view)s cannot be counted: django-ratelimit is not installed, and a request with a key
    raises.

    Type python -m pip install "django-idempotency[throttle]", or leave fresh_keys out.
    """


class E096(Finding):
    """The fresh_keys of %(view)s cannot be counted: RATELIMIT_USE_CACHE is %(alias)s, which CACHES does not have.

    Type RATELIMIT_USE_CACHE = "%(close)s", or add the alias to CACHES.
    """


class W093(Finding):
    """The policy of %(view)s has %(field)s, which needs a cache that all processes share and that counts in one step,
    and CACHES["%(alias)s"] is a %(backend)s: %(effect)s.

    Type CACHES["%(alias)s"] = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION":
    "redis://127.0.0.1:6379/1"}. If there is only one process, %(silence)s.
    """


class W104(Finding):
    """The fresh_keys of %(view)s count all clients without a login as one, since they share a scope
    (anonymous="shared"): one of them can use up the limit of all.

    Type fresh_keys_by= a function that returns what tells them apart, such as the address that your proxy has
    verified. If one limit for all of them is meant, %(silence)s.
    """


class E133(Finding):
    """%(view)s has steps (undo_on) and store_body=False, and a step's result is stored until the operation has ended.

    Type "ENCRYPTION_KEYS", so that it is stored sealed; or leave undo_on or store_body out of the policy of
    %(view)s.
    """


def policy_errors(name: str, policy: Policy, *, coroutine: type[Finding] | None) -> Iterator[CheckMessage]:
    """Yield what is wrong with the policy of a view. `coroutine`: what is wrong with "atomic", for one that is async."""
    try:
        plan = plan_of(policy)
        plan.compile()
    except (ConfigurationError, ImproperlyConfigured) as error:
        yield E035(view=name, error=error)
        return
    if coroutine is not None and not plan.leases:
        yield coroutine(view=name)
    yield from unsealed_steps(name, policy, plan.terms)
    if plan.terms.fresh_keys is not None and plan.terms.fresh_keys_by is None and plan.terms.anonymous == "shared":
        yield W104(view=name)
    yield from _cache_errors(name, plan.terms)


def unsealed_steps(name: str, policy: Policy, terms: Resolved) -> Iterator[CheckMessage]:
    """Find steps whose results would be stored, if only for a while, under a policy that stores none."""
    leases = terms.guarantee is Guarantee.LEASE
    if leases and policy.given().get("undo_on") and not terms.store_body and not conf.get("ENCRYPTION_KEYS"):
        yield E133(view=name)


# ------------------------------------------------------------------------------------------------------------- caches

#: The end of a backend's name → what becomes of what it is given.
_UNFIT = {
    "LocMemCache": "each process counts and remembers on its own",
    "DummyCache": "nothing is counted or remembered",
    "DatabaseCache": "what it counts and remembers is rolled back with a request, and two at once count as one",
    "FileBasedCache": "two that count at once count as one",
}


def _cache_errors(name: str, terms: Resolved) -> Iterator[CheckMessage]:
    """Yield what keeps a policy from counting keys, or from remembering facts."""
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


# ---------------------------------------------------------------------------------------------------- guarded functions


class W064(Finding):
    """%(count)s guarded functions are named %(name)s in the store: a call of one may return another's result.

    Type a different key_prefix="…" for each. If they are variants of one function, such as an async one,
    %(silence)s.
    """


class W066(Finding):
    """%(name)s is a method of the model %(model)s, keyed by all its arguments, but not by self: a call on one row may
    return the result of a call on another.

    Pass what distinguishes the rows as an argument, such as the primary key, and type key="…" with its name.
    """


@after_settings
def check_functions(**_: Any) -> Iterator[CheckMessage]:
    """Check every function under `@idempotent_function`, once the settings are in order."""
    found: dict[str, CheckMessage] = {}
    for terms in declared():
        try:
            messages = [*unsealed_steps(terms.name, terms.policy, function_plan_of(terms).policy)]
        except (ConfigurationError, ImproperlyConfigured) as error:
            messages = [E035(view=terms.name, error=error)]
        found |= {each.msg: each for each in messages}  # once for all that have the name
    yield from found.values()
    for name, count in Counter(terms.name for terms in declared()).items():
        if count > 1:
            yield W064(name=name, count=count)
    for terms in declared():
        if terms.key is None and (model := _model_of(inspect.unwrap(terms.function))) is not None:
            yield W066(name=terms.name, model=model._meta.label)


def _model_of(function: Callable[..., Any]) -> type[Model] | None:
    """Return the model that a function is a method of, by qualified name; `None` without one, or without `self`."""
    if next(iter(inspect.signature(function).parameters), "") != "self":
        return None
    place: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split(".")[:-1]:
        place = getattr(place, name, None)
    return place if isinstance(place, type) and issubclass(place, Model) else None
