"""Which requests are guarded, and under which key: asked by every entry point, before there is a
call.

`admit()` is all of it. An entry point that must know more in between asks the parts:
`key_to_guard()` is cheap where there is no key, and `call_of()` finds whose the key is, and selects
one from the request if the policy says so, which may read its body.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import datetime, timezone
from enum import Enum
from functools import partial
from os import environ
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.encoding import escape_uri_path
from django.utils.functional import SimpleLazyObject

from .. import conf
from ..core.dialects import of_endpoint
from ..core.hashing import framed, record_id, request_digest
from ..core.key_formats import ANY, ISSUED, ISSUED_SAMPLE, kept_for
from ..core.policy import ENFORCE, FINGERPRINTS, SAFE_METHODS, SELECTING, WARN, Policy, Resolved
from ..core.records import Ticket, UnprintedText, prints
from ..core.statuses import HeaderStatus
from ..errors import (
    ConfigurationError,
    KeyAhead,
    KeyExpired,
    KeyMalformed,
    KeyMissing,
    KeyUnsupported,
    Problem,
    ScopeRequired,
)
from ..instrumentation.meters import meters
from ..instrumentation.outcomes import UNGUARDED, UNKEYED
from ..runtime import switch
from ..runtime.app_extensions import extended
from ..scopes import scope_of
from ..stores.lending import in_database_thread, keep_opened
from . import counting
from .bodies import read_as, receive, require_bounded
from .call import Call
from .exchange import (
    Exchange,
    RequestIdempotency,
    SwitchedOff,
    call_on,
    exchange_of,
    hand_out,
    note,
    noted_of,
    speak,
    without_key,
)
from .markers import view_class
from .plan import Plan, formatted_behind_client, plan_of
from .unguarded import KEYLESS, METHOD, NOBODY, leave_unguarded

# A client may send anything: it is kept, searched and sent back.
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
logger = logging.getLogger("django_idempotency")
_NO_PRINCIPAL = (
    "%s %s was refused with scope-required: its key belongs to no user. Let the view "
    "require one, or type scope=… or "
    'anonymous="shared" in its policy.'
)


class Where(Enum):
    """Where the key is, if not in the header."""

    PAYLOAD = "payload"


Key = str | Literal[Where.PAYLOAD]
#: Keys that no request can use, as far as is known before its principal.
UNUSABLE = (KeyMalformed, KeyExpired, KeyAhead)


@prints()
class Keyed(NamedTuple):
    """The plan of a request that is to be guarded, and its key."""

    plan: Plan
    key: Key
    exchange: Exchange

    @property
    def claims_in_database(self) -> bool:
        """Does its claim follow on a connection of Django's?"""
        return self.plan.store.using is not None


def admit(
    request: HttpRequest,
    policy: Policy,
    *,
    user: Any,
    source: Any,
    by: str,
    strict: bool = True,
    **facts: Any,
) -> Call | None:
    """Return the call that guards a request, or `None`: see key_to_guard(), key_with_owner() unless
    `strict`, and call_of().
    """
    keyed = (
        key_to_guard(request, policy, by=by)
        if strict
        else key_with_owner(request, policy, user=user, by=by)
    )
    return (
        None
        if keyed is None
        else call_of(request, keyed, user=user, source=source, strict=strict, **facts)
    )


async def aadmit(
    request: HttpRequest, policy: Policy, *, by: str, source: Any = None, **facts: Any
) -> Call | None:
    """See admit().

    Without a `user` among the `facts` it is found as an async view finds it. The body is read in a
    thread.
    """
    keyed = key_to_guard(request, policy, by=by)
    if keyed is None:
        return None
    if "user" not in facts:
        facts["user"] = await auser_of(request, policy)
    identified = partial(call_of, request, keyed, source=source or request, **facts)
    return await in_database_thread(identified, keep=keyed.claims_in_database)


# ---------------------------------------------------------------------------------- is there a key?


def asking(policy: Policy, request: HttpRequest) -> Plan | None:
    """Return the plan of a policy if a request asks for its guard: see `Plan.asks()`, or `at()` if
    it has routes.

    `None`, too, for a safe method.
    """
    if request.method in SAFE_METHODS:
        return None
    plan = plan_of(policy)
    if plan.asks_by_header:
        return plan if request.META.get(plan.header) is not None else None
    return plan if plan.routed or plan.asks(request.META) else None


def key_to_guard(request: HttpRequest, policy: Policy, *, by: str = "decorator") -> Keyed | None:
    """Return the key to guard a request under, or `None` to let it run; cheap when there is none.

    `by` is the kind of the entry point that asks, for the metrics.

    `Where.PAYLOAD`: the policy selects it, which may read the body and is left to `call_of()`.
    `None` for a safe method, a method outside the policy, a request that an outer guard covers, no
    key, and while idempotency is off. Raises `KeyMissing`, `KeyMalformed`, `KeyExpired`, `KeyAhead`
    and `KeyUnsupported`, and `ConfigurationError` for a policy that contradicts the settings; or
    notes them if the policy only observes. `ConfigurationError`, too, for a guard that the
    middleware cannot see.
    """
    if not hasattr(request, "idempotency"):
        request.idempotency = without_key()  # type: ignore[attr-defined]
    if request.method in SAFE_METHODS:
        return None
    known = noted_of(request)
    if known is not None and known.call is not None and is_covered(request):
        return None
    if meters.active or (known is not None and known.arrived is not None):
        counting.begin(request, policy, by)
    plan = asking(policy, request)
    if plan is None:
        if meters.active:
            counting.count(request, UNKEYED)
        return None
    exchange = known or exchange_of(request)
    exchange.plan = plan
    exchange.spoken = plan.spoken
    exchange.has_begun = False
    guards = request.method in plan.methods
    if not guards and not _is_unsupported(request, plan):
        return None
    if (switch.overrides or environ.get(switch.VARIABLE)) and not switch.enabled():
        switch_off(request, plan)
        return None
    return _keyed(request, plan, exchange, guards=guards)


def key_with_owner(request: HttpRequest, policy: Policy, *, user: Any, by: str) -> Keyed | None:
    """See key_to_guard().

    A request without a principal, which may run unguarded, does so with an unusable key, too.

    For what guards views that know nothing of keys: the sender may be another service, whose header
    of that name means something else.
    """
    try:
        return key_to_guard(request, policy, by=by)
    except UNUSABLE:
        plan = exchange_of(request).plan
        if (
            plan.terms.required is True
            or scope_of(request, user, plan.terms, ISSUED_SAMPLE) is not None
        ):
            raise
        leave_unguarded(request, NOBODY)
        return None


def _keyed(request: HttpRequest, plan: Plan, exchange: Exchange, *, guards: bool) -> Keyed | None:
    """Read the key of a request that the plan guards, or (not `guards`) whose method it does not
    support.
    """
    try:
        sent: Any = request.META.get(plan.header) if plan.header else plan.sent(request.META)
        if isinstance(sent, str):
            sent = UnprintedText(sent)
        found = plan.profile.read_key(sent, request.META)
        if not guards:
            raise KeyUnsupported
        if found is not None:
            found = UnprintedText(found)
            if plan.respells:
                found = formatted_behind_client(found, plan.policy)
            if plan.profile.echoes:
                speak(request, plan.profile, sent)
        key = _key_elsewhere(request, plan) if found is None else found
    except (Problem, ConfigurationError, ImproperlyConfigured) as error:
        if plan.observer is None:
            raise
        plan.observer.watch(request, None, refusal=error)
        return None
    return None if key is None else Keyed(plan, key, exchange)


def _is_unsupported(request: HttpRequest, plan: Plan) -> bool:
    """Is a key of a request whose method the policy does not guard an error in its profile?

    Otherwise it runs unguarded.
    """
    if not plan.carries_key(request.META):
        return False
    if not plan.profile.refuses_methods:
        leave_unguarded(request, METHOD)
    return plan.profile.refuses_methods


def _key_elsewhere(request: HttpRequest, plan: Plan) -> Key | None:
    """Return where the key of a request without the header is; `None`: it needs none.

    Raises `KeyMissing`.
    """
    if plan.may_have_key(request.META):
        return Where.PAYLOAD
    if plan.required == WARN:
        leave_unguarded(request, KEYLESS)
        return None
    raise KeyMissing


def is_covered(request: HttpRequest) -> bool:
    """Is it guarded already, so that a guard has nothing to do?

    Raises `ConfigurationError` for a guard inside a view that the middleware guards: a replay would
    skip what stands between the two. That view's response is not kept, even if it handles the
    error.
    """
    outer = call_on(request)
    if outer is None or not outer.by_middleware:
        return outer is not None
    outer.discard()  # the view may have worked
    view = getattr(getattr(request, "resolver_match", None), "func", None)
    name = getattr(view_class(view) or view, "__qualname__", "the view")
    raise ConfigurationError(
        f"{name} calls a view with a guard of its own, which IdempotencyMiddleware cannot "
        f"see: it guards {name} instead, "
        "by its own policy, and a replay would skip what checks access before the inner view. Put "
        f"@idempotency_exempt on {name}; the inner view keeps its guard."
    )


def switch_off(request: HttpRequest, plan: Plan) -> None:
    """Give the request a `request.idempotency` that stores nothing, and warn once per process."""
    switch.warn_once()
    if plan.carries_key(request.META):
        note(request, HeaderStatus.UNGUARDED)
    if not getattr(request, "idempotency", None):  # another entry point has set it
        hand_out(request, extended(RequestIdempotency)(SwitchedOff(request, plan)))
    counting.count(request, UNGUARDED)


# ------------------------------------------------------------------------ whose is it, and of what?


def call_of(
    request: HttpRequest, keyed: Keyed, *, user: Any, source: Any, strict: bool = True, **facts: Any
) -> Call | None:
    """Return the call of a keyed request, or `None` if it runs unguarded: see `identify()`, also
    for `source`.

    Raises what fingerprinting and the settings raise. `None`, too, under a policy that only
    observes. `facts`: see `Call`.
    """
    plan, key, exchange = keyed
    if plan.observer is not None:
        plan.observer.watch(request, plan, key=key, user=user, source=source, strict=strict)
        return None
    terms = plan.terms
    identity = identify(request, terms, key=key, user=user, source=source, strict=strict)
    if identity is None:
        return None
    ticket = identity.ticket(terms, plan.issue)
    # In `atomic` nothing of a crashed owner is left to ask about.
    if plan.leases and terms.on_takeover is not None:
        from .takeovers import decide  # most policies have no such hook

        facts["decide"] = decide
    if terms.extensions:
        facts["document"] = identity.document(terms)
    if key is Where.PAYLOAD and plan.selects and not plan.in_body:
        facts["selected"] = True
    return Call(request, plan, ticket, exchange, by_middleware=not strict, **facts)


def identify(
    request: HttpRequest, policy: Resolved, *, key: Key, user: Any, source: Any, strict: bool
) -> Identity | None:
    """Return the identity of a keyed request; for a key without a principal `None`, or if `strict`
    `ScopeRequired`.

    A key that was issued for another principal or another address is a `KeyForeign`.

    If keys are required it is always `ScopeRequired`: nothing may run unguarded there. A request
    without the header is refused only then, and also gets `None` when there is nothing to select
    its key from. `source` is the request that the view sees (DRF's, or Django's), which parses the
    body as the view would.
    """
    document = None
    if policy.profile.carrier == "body":
        from . import selection  # it loads jmespath

        document = selection.Document(source, user, policy.max_request_body)
        if policy.required is True and scope_of(request, user, policy, ISSUED_SAMPLE) is None:
            raise ScopeRequired  # its body is not read
        found = selection.key_in_body(document, policy)
        if found is None:
            return None
        key = found
    carried = "" if key is Where.PAYLOAD else key
    scope = scope_of(request, user, policy, carried)
    if scope is None:
        if policy.required is True or (strict and carried):
            facts = {"event": "refused", "reason": ScopeRequired.code, "method": request.method}
            path = escape_uri_path(request.path)
            logger.warning(
                _NO_PRINCIPAL, request.method, path, extra={"idempotency": {**facts, "path": path}}
            )
            raise ScopeRequired
        if strict or carried:
            leave_unguarded(request, NOBODY)
        return None
    if carried and policy.key_format == ISSUED:
        from .issued_keys import require_bound  # it loads Django's signing

        # Before the space stands its client's name.
        require_bound(carried.rpartition(" ")[2], scope, request)
    if carried:
        return Identity(UnprintedText(carried), scope, source, user, document)
    from . import selection  # it loads jmespath

    document = selection.Document(source, user, policy.max_request_body)
    selected = selection.selected_key(document, policy, scope)
    return (
        None
        if selected is None
        else Identity(UnprintedText(selected), scope, source, user, document)
    )


@prints("scope")
class Identity(NamedTuple):
    """A key, its qualified scope, and the request that they came with: `source` as the view sees
    it, of this user.
    """

    key: str
    scope: str
    source: Any
    user: Any
    #: As an expression has seen it.
    seen: Any = None

    def document(self, policy: Resolved) -> Any:
        """Return the request as an expression sees it."""
        from . import selection  # it loads jmespath

        return self.seen or selection.Document(self.source, self.user, policy.max_request_body)

    def ticket(self, policy: Resolved, issue: Callable[..., Ticket]) -> Ticket:
        """Return the ticket of the request, which `issue` makes.

        Raises what `fingerprint()` raises.
        """
        http: HttpRequest = getattr(self.source, "_request", self.source)
        key = self.key
        path = escape_uri_path(http.path)
        if policy.profile.keys_per == "endpoint":
            key = UnprintedText(of_endpoint(key, path))
        kept = policy.ttl + policy.profile.grace
        if policy.key_format != ANY:
            kept = kept_for(policy.key_format, kept)
        digest = fingerprint(self.source, policy, self.user, self.seen)
        return issue(
            id=record_id(self.scope, key),
            scope=self.scope,
            key=key,
            digest=digest,
            owner=uuid4(),  # from the operating system: neither a fork nor a snapshot repeats it
            now=datetime.now(timezone.utc),
            method=http.method or "",
            path=path[:255],
            request_id=request_id_of(http, policy) if policy.request_id_header in http.META else "",
            ttl=kept + policy.seen_for,
        )


def request_id_of(request: HttpRequest, policy: Resolved) -> str:
    """Return the id that the request came with; "" for none, and for what no header of ours may
    repeat.
    """
    sent = str(request.META.get(policy.request_id_header, ""))
    return sent if _REQUEST_ID.fullmatch(sent) else ""


async def auser_of(request: HttpRequest, policy: Policy) -> Any:
    """Return the user that an async view finds: set on the request by a middleware, or else found
    by Django's own.

    A lazy user stays lazy: evaluating it may query a database, which is done in a thread. A policy
    that only observes does not even ask Django's: that reads the session.
    """
    user = getattr(request, "user", None)
    if conf.field(policy, "mode") != ENFORCE:
        return user
    if hasattr(request, "auser") and (user is None or isinstance(user, SimpleLazyObject)):
        found = await keep_opened(request.auser)
        return found if user is None or found.is_authenticated else user
    return user


# ---------------------------------------------------------------------------------- the fingerprint

#: What a project's function raises about a body that it cannot read, which the view reports: all of
#: it is compared then.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


def fingerprint(request: Any, policy: Resolved, user: Any = None, document: Any = None) -> bytes:
    """Return the 32 bytes of a request's digest. `request` is Django's, or DRF's around it.

    An expression selects from `document`, or may select this `user`. Whatever is compared, all of
    the body is there: raises `BodyIncomplete` otherwise. Raises `RequestTooLarge` for more than the
    policy's `max_request_body`, and `ConfigurationError` when the body was read already or
    `policy.fingerprint` returns what is not a fingerprint.
    """
    http: HttpRequest = getattr(request, "_request", request)
    content_type = (http.content_type or "").lower()
    parts = [str(http.method), http.path]
    if policy.profile.compares != "body":
        parts += [http.META.get("QUERY_STRING", ""), content_type]
    # A client's charset may decode to lone surrogates.
    texts = [part.encode("utf-8", "surrogatepass") for part in parts]
    rule: Any = policy.fingerprint
    found = None
    if rule == "headers":
        found = request_digest(framed(texts), b"headers")
    elif rule not in FINGERPRINTS:
        found = _chosen(request, texts, policy, user, document)
    if found is not None:
        receive(request, reads=policy.mode == ENFORCE)
        return found
    require_bounded(http, policy.max_request_body)
    receive(request)
    way, content = read_as(request, http, policy)
    return request_digest(framed(texts), way, content)


def _chosen(
    request: Any, texts: list[bytes], policy: Resolved, user: Any, document: Any
) -> bytes | None:
    """Return the digest by what an expression or a function of the project chooses; `None`: all of
    the body is compared.
    """
    from . import selection  # it loads jmespath

    rule: Any = policy.fingerprint
    if not selection.asks_request(rule):
        document = document or selection.Document(request, user, policy.max_request_body)
        selected = selection.selected_part(document, rule)
        # The query counts only if it is selected, too.
        return (
            None if selected is None else request_digest(framed(texts[:2]), b"selected", selected)
        )
    require_bounded(getattr(request, "_request", request), policy.max_request_body)
    receive(request, reads=policy.mode == ENFORCE)
    try:
        found = rule(request)
    except _UNREADABLE:
        return None
    return request_digest(framed(texts), b"custom", _octets(found))


def _octets(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise ConfigurationError(
        f"Policy.fingerprint must return bytes or text, not {type(value).__name__}."
    )


def compile_expressions(policy: Policy) -> None:
    """Compile a policy's expressions. Raises `ValueError`, which says what to type instead."""
    given = policy.given()
    if any(given.get(name) not in (None, *FINGERPRINTS) for name in SELECTING):
        from .selection import compile_given  # it loads jmespath

        compile_given(policy)
