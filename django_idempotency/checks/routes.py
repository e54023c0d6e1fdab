"""Checks of each route of the URLconf. Only what can be proven wrong is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.checks import CheckMessage

from .. import conf
from ..core.policy import Policy
from ..core.records import Guarantee
from ..http.kinds import Unknown, kind_of
from ..http.layers import is_undecorated
from ..http.markers import carriers, decorated_by, is_unawaited, mark_of, view_class
from ..http.views import own_policy, route_of
from ..stores.check_messages import Finding, type_named
from .middleware import guards_every_view
from .policies import policy_errors
from .settings import after_settings
from .urlconf import (
    are_exempt,
    has_operations,
    is_rest,
    name_of,
    open_handlers,
    policies,
    views,
)


class E030(Finding):
    """%(view)s is async, and no transaction can cover it: it cannot be "atomic".

    Put @idempotent(guarantee="lease") on it, or @idempotency_exempt.
    """


class E031(Finding):
    """%(view)s passes its guard by: %(problem)s

    Put IdempotentViewMixin first in its bases. Such a class raises as it is made, unless a base of
    it has an __init_subclass__() that does not call super().
    """


class E032(Finding):
    """%(view)s has IdempotentViewMixin, but is not a Django REST framework view.

    Take the mixin out and put @idempotent() on the class.
    """


class E033(Finding):
    """The as_view() of %(view)s is wrapped in another decorator in the URLconf, which
    IdempotencyMiddleware must not skip. A request with a key raises.

    Put IdempotentViewMixin first in the bases of %(name)s, or @idempotency_exempt on it; or name it
    in EXEMPT, if it is not yours.
    """


class E036(Finding):
    """%(view)s has %(attribute)s = Policy(…), which nobody reads: it has neither
    IdempotentViewMixin nor @idempotent(), so that policy guards nothing.

    Put IdempotentViewMixin first in the bases of a REST framework view, and type idempotency =
    Policy(…); on another view, put @idempotent(…) on the class, with the fields of that policy.
    """


class E038(Finding):
    """The attribute idempotency of %(view)s is %(found)s, not a Policy.

    Type idempotency = Policy(required=True, …) in the class.
    """


class E039(Finding):
    """%(view)s has a guard that guards nothing: it takes %(taken)s, and its policy guards
    %(guarded)s.

    Let the view take a method that is guarded; or type methods=[…] in its policy with unsafe
    methods that it takes; or take the guard away.
    """


class E067(Finding):
    """%(view)s has async handlers, which Django REST framework does not await: a request with a key
    raises.

    Use the APIView of adrf and type idempotency = Policy(guarantee="lease"), or make the handlers
    sync.
    """


class E069(Finding):
    """%(view)s cannot be guarded, and a request to it raises: %(problem)s

    Put @idempotent() where the message says.
    """


class E082(Finding):
    """IDEMPOTENCY["REQUIRED"] is set, and IdempotencyMiddleware cannot guard %(view)s: %(why)s. An
    unsafe request to it raises.

    %(fix)s. Put @idempotency_exempt on what may run twice.
    """


class W084(Finding):
    """IdempotencyMiddleware does not guard %(view)s: %(why)s. A request with a key runs unguarded.

    %(fix)s. Put @idempotency_exempt on what may run twice; or type %(silence)s.
    """


class E149(Finding):
    """%(view)s is a view of %(package)s, which its guard does not know: a request with a key
    raises.

    Add django-idempotency's optional app for %(package)s to INSTALLED_APPS: the line is in its
    documentation under "Views of other packages".
    """


class E071(Finding):
    """%(view)s is an async REST framework view: no transaction can cover it, so it cannot be
    "atomic", and IdempotencyMiddleware cannot guard it. A request with a key raises.

    Put IdempotentViewMixin first in its bases and type idempotency = Policy(guarantee="lease"), or
    put @idempotency_exempt on it.
    """


@after_settings
def check_routes(**_: Any) -> Iterator[CheckMessage]:
    """Check every view of the URLconf, once the settings are in order."""
    under_middleware = guards_every_view()
    found: dict[str, CheckMessage] = {}
    for callback, leading in views():
        if has_operations(callback):
            continue  # whose kind has a check of them
        path = leading[0].path
        view = f"{name_of(callback)} ({path})"
        messages = [*own_problems(callback, view)]
        if under_middleware and not route_of(callback, "").exempt and not are_exempt(leading):
            for policy in {
                id(found): found for found, *_ in (route.by_middleware() for route in leading)
            }.values():
                messages += middleware_problems(callback, view, policy)
        for message in messages:
            # Report a class once.
            found.setdefault(f"{message.id} {message.msg.replace(path, '')}", message)
    yield from found.values()


def own_problems(callback: Any, view: str) -> Iterator[CheckMessage]:
    """Find problems of a view's own guards."""
    if view_class(callback) is not None:
        yield from _class(callback, view)
    coroutine = None if not iscoroutinefunction(callback) else E071 if is_rest(callback) else E030
    for policy in policies(callback):
        yield from policy_errors(view, policy, coroutine=coroutine)
    kind = kind_of(callback)
    if isinstance(kind, Unknown) and policies(callback):
        yield E149(view=view, package=kind.package)
    yield from _idle(callback, view)
    yield from refusals(callback, view)


def _idle(callback: Any, view: str) -> Iterator[CheckMessage]:
    """Find a guard that guards no method of its view."""
    taken = open_handlers(callback)
    found = [own_policy(callback, name) for name in taken] if taken else _its_own(callback)
    known = [policy for policy in found if policy is not None]
    guarded = {name.upper() for policy in known for name in conf.field(policy, "methods")}
    if known and len(known) == len(found) and guarded.isdisjoint(name.upper() for name in taken):
        methods = ", ".join(name.upper() for name in taken) or "no unsafe method"
        yield E039(view=view, taken=methods, guarded=", ".join(sorted(guarded)))


def _its_own(callback: Any) -> list[Policy | None]:
    """Return the policy that is on a view itself.

    One that its class has inherited, or of a ViewSet, is for others, too.
    """
    cls = view_class(callback)
    if hasattr(callback, "actions"):
        return []
    return [mark_of(callback).policy if cls is None else decorated_by(cls)]


def _unread(callback: Any, cls: type[Any], view: str) -> Iterator[CheckMessage]:
    """Find a policy among the attributes of a class that has no guard to read it."""
    if _guards_inside(callback):
        return
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if isinstance(value, Policy):
                yield E036(view=view, attribute=name)
                return


def operation_problems(operation: Any, name: str) -> Iterator[CheckMessage]:
    """Find what is wrong with the policy of an operation below a view."""
    policy = mark_of(operation).policy
    if policy is not None:
        yield from policy_errors(name, policy, coroutine=E030 if operation.is_async else None)


def refusals(callback: Any, view: str) -> Iterator[CheckMessage]:
    """Find our decorators that their class does not see: a request to such a handler raises."""
    for refusal in {refusal for each in carriers(callback) if (refusal := mark_of(each).refusal)}:
        yield E069(view=view, problem=refusal)


# ------------------------------------------------------------------------------------------ classes


def _class(callback: Any, view: str) -> Iterator[CheckMessage]:
    cls = view_class(callback)
    assert cls is not None
    if hasattr(cls, "get_idempotency_policy"):
        yield from _mixin(callback, cls, view)
    yield from _unread(callback, cls, view)
    if (
        is_rest(callback)
        and is_unawaited(cls, getattr(callback, "actions", None))
        and _guards_inside(callback)
    ):
        yield E067(view=view)


def _guards_inside(callback: Any) -> bool:
    """Does a DRF class have the mixin, or `@idempotent()` below `@api_view`?"""
    cls = view_class(callback)
    return hasattr(cls, "get_idempotency_policy") or any(
        mark_of(each).policy is not None for each in carriers(callback)
    )


def _mixin(callback: Any, cls: type[Any], view: str) -> Iterator[CheckMessage]:
    # not above: needs DRF, which a class with the mixin has loaded
    from ..rest_framework.guarding import IdempotentViewMixin, passes_the_guard_by

    if not issubclass(cls, IdempotentViewMixin):
        return
    if problem := passes_the_guard_by(cls):
        yield E031(view=view, problem=problem)
        return
    if not hasattr(cls, "initialize_request"):
        yield E032(view=view)
    policy = getattr(callback, "initkwargs", {}).get("idempotency", cls.idempotency)
    decides = cls.get_idempotency_policy is not IdempotentViewMixin.get_idempotency_policy
    if not isinstance(policy, Policy) and not hasattr(policy, "__get__") and not decides:
        yield E038(view=view, found=type_named(policy))


# ----------------------------------------------------------------------------- under the middleware


def middleware_problems(callback: Any, view: str, policy: Policy) -> Iterator[CheckMessage]:
    """Find what the middleware cannot guard."""
    known = [route_of(callback, name) for name in open_handlers(callback)]
    if all(each.guards_itself or each.exempt for each in known):
        return
    cls = view_class(callback)
    kind = kind_of(callback)
    if kind.left is not None:
        finding = E082 if conf.get("REQUIRED") is True else W084
        yield finding(view=view, why=kind.left.sentence, fix=kind.fix)
    elif cls is not None and is_rest(callback):
        if iscoroutinefunction(callback):
            yield E071(view=view)
            return
        if not is_undecorated(callback, cls):
            yield E033(view=view, name=cls.__name__)
    elif iscoroutinefunction(callback) and conf.field(policy, "guarantee") == Guarantee.ATOMIC:
        yield E030(view=view)
