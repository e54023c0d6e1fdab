"""Can each route of the URLconf have what it asks for? Only what can be proven is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.checks import CheckMessage
from django.db import connections

from .. import conf
from ..core.policy import Policy
from ..core.records import Guarantee
from ..marks import POLICY, UNSAFE_HANDLERS, below_api_view, has_own_door, is_exempt
from .catalogue import a, finding
from .middleware import guards_every_view
from .policies import misfits
from .settings import check_settings
from .urlconf import callbacks, class_of, name_of, open_handlers, overrides_policy, policies


def check_routes(**_: Any) -> list[CheckMessage]:
    """Check every view of the URLconf, once the settings are in order."""
    if check_settings():
        return []
    under_middleware = guards_every_view()
    found: dict[str, CheckMessage] = {}
    for callback in callbacks():
        for message in _view(callback, under_middleware=under_middleware):
            found.setdefault(f"{message.id} {message.msg}", message)
    return list(found.values())


def _view(callback: Any, *, under_middleware: bool) -> Iterator[CheckMessage]:
    if class_of(callback) is not None:
        yield from _class(callback)
    for policy in policies(callback):
        yield from misfits(name_of(callback), policy, coroutine="E030" if iscoroutinefunction(callback) else None)
    if under_middleware and not is_exempt(callback):
        yield from _under_middleware(callback)


# ---------------------------------------------------------------------------------------------------------- classes


def _class(callback: Any) -> Iterator[CheckMessage]:
    cls = class_of(callback)
    assert cls is not None
    if hasattr(cls, "get_idempotency_policy"):
        yield from _mixin(cls, name_of(callback))
    if any(s["ATOMIC_REQUESTS"] for s in connections.settings.values()) and any(
        hasattr(below_api_view(getattr(cls, name, None)), POLICY) for name in UNSAFE_HANDLERS
    ):
        yield finding("E034", view=name_of(callback))


def _mixin(cls: type[Any], view: str) -> Iterator[CheckMessage]:
    from ..rest_framework import IdempotentViewMixin  # not above: wants DRF, which a class with the mixin has loaded

    if not issubclass(cls, IdempotentViewMixin):
        return
    for base in cls.__mro__[: cls.__mro__.index(IdempotentViewMixin)]:
        # Theirs do not call super() in these two; a project's own may.
        if base.__module__.partition(".")[0] == "rest_framework" and {"dispatch", "as_view"} & vars(base).keys():
            yield finding("E031", view=view, other=base.__name__, name=cls.__name__)
            return
    if not hasattr(cls, "initialize_request"):
        yield finding("E032", view=view)
    policy = cls.idempotency
    if not isinstance(policy, Policy) and not hasattr(policy, "__get__") and not overrides_policy(cls):
        yield finding("E038", view=view, found=a(policy))


# ---------------------------------------------------------------------------------------------- under the middleware


def _under_middleware(callback: Any) -> Iterator[CheckMessage]:
    if all(has_own_door(callback, name) for name in open_handlers(callback)):
        return
    view, cls = name_of(callback), class_of(callback)
    if cls is not None and hasattr(cls, "initialize_request"):
        from ..rest_framework.lending import is_bare  # not above: wants DRF, which such a class has loaded

        if not is_bare(callback):
            yield finding("E033", view=view, name=cls.__name__)
    elif iscoroutinefunction(callback) and conf.get("GUARANTEE") == Guarantee.ATOMIC:
        yield finding("E030", view=view)
