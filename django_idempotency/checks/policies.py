"""Checks of policies, of views and of guarded functions: the plan compiles.

Of functions, only those of imported modules are seen.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model

from ..core.policy import Policy, Resolved
from ..errors import ConfigurationError
from ..functions.call import plan_of as function_plan_of
from ..functions.terms import declared
from ..http.plan import plan_of
from ..stores.check_messages import Finding
from .settings import after_settings


class E035(Finding):
    """The policy of %(view)s cannot be kept: %(error)s

    Type what it says in the policy of %(view)s, or change the setting.
    """


def policy_errors(
    name: str, policy: Policy, *, coroutine: type[Finding] | None
) -> Iterator[CheckMessage]:
    """Yield what is wrong with the policy of a view.

    `coroutine`: what is wrong with "atomic", for one that is async.
    """
    try:
        plan = plan_of(policy)
        plan.compile()
    except (ConfigurationError, ImproperlyConfigured) as error:
        yield E035(view=name, error=error)
        return
    if coroutine is not None and not plan.leases:
        yield coroutine(view=name)
    yield from found_by_extensions(name, plan.terms)


def found_by_extensions(name: str, terms: Resolved) -> Iterator[CheckMessage]:
    """Yield what the extensions of a policy and those of the settings find."""
    for each in terms.chosen:
        yield from each.check(name, terms)


# -------------------------------------------------------------------------------- guarded functions


class W064(Finding):
    """%(count)s guarded functions are named %(name)s in the store: a call of one may return
    another's result.

    Type a different key_prefix="…" for each. If they are variants of one function, such as an async
    one, %(silence)s.
    """


class W066(Finding):
    """%(name)s is a method of the model %(model)s, keyed by all its arguments, but not by self: a
    call on one row may return the result of a call on another.

    Pass what distinguishes the rows as an argument, such as the primary key, and type key="…" with
    its name.
    """


@after_settings
def check_functions(**_: Any) -> Iterator[CheckMessage]:
    """Check every function under `@idempotent_function`, once the settings are in order."""
    found: dict[str, CheckMessage] = {}
    for terms in declared():
        try:
            messages = list(found_by_extensions(terms.name, function_plan_of(terms).policy))
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
    """Return the model that a function is a method of, by qualified name; `None` without one, or
    without `self`.
    """
    if next(iter(inspect.signature(function).parameters), "") != "self":
        return None
    place: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split(".")[:-1]:
        place = getattr(place, name, None)
    return place if isinstance(place, type) and issubclass(place, Model) else None
