"""What is noted of one request, from its first entry point to its response, and the headers that
tell its client.

It is kept with `request.idempotency`. `Idempotency-Status` is one word on the response to a keyed
request, so that a client need not guess. `core.statuses` has the words, and when each is said. It
belongs to one exchange, so it is never stored with the response, and a replay carries its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4

from django.http import HttpRequest
from django.http.response import HttpResponseBase, ResponseHeaders

from .. import conf
from ..core.conclusions import WorkResult
from ..core.dialects import Answer, Dialect
from ..core.policy import Policy, Resolved
from ..core.records import prints
from ..core.statuses import HeaderStatus, Moment, status_of
from ..engine.operation import Operation
from ..errors import ConfigurationError, KeyAhead, KeyExpired, KeyMalformed, Problem
from ..instrumentation.meters import Source
from ..runtime.app_extensions import extended
from ..runtime.derivation import Unstored
from ..runtime.handle import OperationHandle
from ..scopes import qualified, realm_of

T = TypeVar("T")

HEADER = "Idempotency-Status"
REPLAYED = "Idempotent-Replayed"
DEGRADED = "Idempotency-Degraded"
#: The id of the request that did the work: on its own response, and on every replay of it.
ORIGINAL = "Original-Request"
#: What a view may have copied from another service.
_UNSET = {REPLAYED: "", ORIGINAL: "", DEGRADED: ""}


@prints()
class Spoken(NamedTuple):
    """How the response to one request speaks about its key."""

    profile: Dialect
    #: The well-formed value of the key's header, for profiles that repeat it; "": there is none.
    sent: str = ""


class Exchange:
    """A request and its response, as far as entry points have noted something. Most requests have
    none: they have no key.
    """

    #: The plan that the request was looked at with last, and the profile that its response speaks.
    plan: Any = None
    spoken: Spoken | None = None
    #: The status for its header, once known, and the id of the request that did the work; "": there
    #: is none.
    status: HeaderStatus | None = None
    original = ""
    #: The response that has the headers of that already. Weak, since Django lets a response refer
    #: to its request.
    stamped: weakref.ref[HttpResponseBase] | None = None
    #: The exception of its view that has become a response, and that response. Weak: its traceback
    #: holds the request.
    answer: tuple[weakref.ref[Exception], HttpResponseBase] | None = None
    #: Why it is not guarded, until that is reported.
    reason: Any = None
    #: The record that it is about, and the operation that has claimed it.
    record: UUID | None = None
    operation: Operation | None = None
    #: The call that guards it, while its view runs.
    call: Any = None
    #: Has its view begun to run under a call?
    has_begun = False
    #: What of an entry point must be found again deeper inside.
    entry: Any = None
    #: The labels of its figures, once an entry point has noted them, and whether it is counted.
    source: Source | None = None
    counted = False
    #: Is called with each entry point that it comes to, and its policy.
    arrived: Callable[[str, Policy], None] | None = None
    #: Is called with the response of a view that ran unguarded.
    concluding: Callable[[HttpRequest, HttpResponseBase], None] | None = None

    def __init__(self, request: HttpRequest) -> None:
        #: The request: what is noted of it is not true of a copy of it.
        self.of = weakref.ref(request)


# ---------------------------------------------------------------------------- `request.idempotency`

#: The scope of derived keys while idempotency is off: the client is not identified, and a guarded
#: run derives other keys.
_SCOPE = "unguarded"


class RequestIdempotency(OperationHandle):
    """`request.idempotency` in a guarded view."""

    #: What is noted of the request.
    _exchange: Exchange | None = None
    _ending: WorkResult | None = None

    def __init__(
        self, operation: Operation, policy: Resolved | None = None, exchange: Exchange | None = None
    ) -> None:
        self._operation = operation
        self._policy = policy
        self._exchange = exchange
        self.seconds = None
        self.is_held = False

    @property
    def is_running(self) -> bool:
        """See OperationHandle."""
        call = None if self._exchange is None else self._exchange.call
        return call is not None and call.handle is self

    def keep(self) -> None:
        """Store this response, whatever its status. The writes of a 5xx are still rolled back."""
        self._ending = WorkResult.KEPT

    def drop(self) -> None:
        """Do not store this response: the key is free again, even for a different body."""
        self._ending = WorkResult.DROPPED


class _NoKey(Unstored):
    """What a request runs under that no key guards."""

    def derived(self, label: str) -> str:
        """Raise `ConfigurationError`: a retry without a key is another request, so no key could
        stay the same.
        """
        raise ConfigurationError(
            f"derive({label!r}) in a request without an idempotency key, or with one that "
            "belongs to nobody: there is "
            "nothing to derive from. Type required=True in the policy, or ask `if "
            "request.idempotency:` first."
        )


NO_KEY = _NoKey("", "")


class WithoutKey(RequestIdempotency):
    """`request.idempotency` of a request that no key guards: false. Nothing is stored."""

    _operation = NO_KEY
    seconds = None
    is_held = False

    def __init__(self, exchange: Any = None) -> None:
        object.__setattr__(self, "_exchange", exchange)

    def __setattr__(self, name: str, value: object) -> None:
        """Forget what a view sets: all requests of which nothing is noted share one."""

    def __bool__(self) -> bool:
        return False


@lru_cache(maxsize=1)
def _of_class(kind: Any) -> WithoutKey:
    return kind()  # type: ignore[no-any-return]


def without_key() -> WithoutKey:
    """Return what each entry point sets on a request that it does not guard, or not yet."""
    kind: Any = extended(WithoutKey)
    return _of_class(kind)


class SwitchedOff(Unstored):
    """What a request runs under while idempotency is off."""

    def __init__(self, request: HttpRequest, plan: Any) -> None:
        super().__init__(_SCOPE, _key_or_new(request, plan))
        self._request = weakref.ref(request)  # the request refers to us
        self._plan = plan

    @property
    def scope(self) -> str:
        """The scope of this request's realm."""
        request = self._request()
        return (
            _SCOPE
            if request is None
            else qualified(_SCOPE, realm=realm_of(self._plan.terms, request))
        )


def _key_or_new(request: HttpRequest, plan: Any) -> str:
    """Return the client's key, or a new one if that is missing or malformed: views may rely on its
    form.
    """
    with suppress(KeyMalformed, KeyAhead, KeyExpired):
        key = plan.read_key(request.META)
        if key is not None:
            return str(key)
    return uuid4().hex


def noted_of(request: HttpRequest) -> Exchange | None:
    """Return what is noted of a request; `None`: nothing."""
    found: Exchange | None = getattr(getattr(request, "idempotency", None), "_exchange", None)
    if found is None or found.of() is request or found.call is not None:
        return found
    return exchange_of(request)


def exchange_of(request: HttpRequest) -> Exchange:
    """Return what is noted of a request, to note more.

    A copy of a request has the handle of the other one. Inside the call that guards that, both are
    one exchange.
    """
    handle: Any = getattr(request, "idempotency", None)
    found: Exchange | None = getattr(handle, "_exchange", None)
    if found is not None and (found.of() is request or found.call is not None):
        return found
    exchange = Exchange(request)
    if found is None and handle is not None and handle is not without_key():
        handle._exchange = exchange  # noqa: SLF001 - ours
    else:
        request.idempotency = extended(WithoutKey)(exchange)  # type: ignore[attr-defined]
    return exchange


def refer_to(request: HttpRequest, record: UUID) -> None:
    """Let the problem that answers a request name this record, and not the request's own."""
    exchange = exchange_of(request)
    exchange.record = record
    exchange.operation = None


def call_on(request: HttpRequest) -> Any:
    """Return the `Call` that guards a request now, or `None`."""
    found = noted_of(request)
    return None if found is None else found.call


def speak(request: HttpRequest, profile: Dialect, sent: object = None) -> None:
    """Note a profile on a request, and the value of its header once that has been read without a
    complaint.
    """
    repeated = "" if sent is None else str(sent).strip(" \t")
    exchange_of(request).spoken = Spoken(profile, repeated)


def spoken_to(request: HttpRequest) -> Spoken:
    """Return the profile in which a request is answered; if none is noted on it, that of the
    settings.
    """
    found = noted_of(request)
    if found is not None and found.spoken is not None:
        return found.spoken
    return Spoken(conf.profile_of())


def hand_out(request: HttpRequest, handle: Any) -> Exchange:
    """Set `request.idempotency`. What is noted of the request stays with it, and is returned."""
    exchange = exchange_of(request)
    handle._exchange = exchange  # noqa: SLF001 - ours
    request.idempotency = handle  # type: ignore[attr-defined]
    return exchange


# -------------------------------------------------------------------------------------- the headers


def headers_of(request: HttpRequest, problem: Problem) -> dict[str, str]:
    """Return the headers of a problem's response, once it is noted on its request."""
    found: dict[str, str] = {}
    spoken = spoken_to(request)
    code = spoken.profile.status_of(problem)
    original = problem.headers.get(ORIGINAL, "")
    set_headers(noted(request), found, spoken, code, original=original, problem=problem)
    return found


def said_of(problem: Problem, request: HttpRequest) -> HeaderStatus | None:
    """Return the status of a problem that a request meets now; `None` for one of a request without
    a key.
    """
    found = noted_of(request)
    if found is None or not found.has_begun:
        return status_of(problem, Moment.BEFORE)
    if found.call is not None:
        return status_of(problem, Moment.DURING)
    return status_of(problem, Moment.AFTER, found.status or HeaderStatus.LOST)


def note(request: HttpRequest, status: HeaderStatus | None, *, original: str = "") -> None:
    """Note a status on the request, for the entry point that handles its response.

    `original`: see `ORIGINAL`.
    """
    exchange = exchange_of(request)
    exchange.status = status
    exchange.original = original


def noted(request: HttpRequest) -> HeaderStatus | None:
    """Return the status of a request, or `None` if no entry point has noted one."""
    found = noted_of(request)
    return None if found is None else found.status


def stamp(request: HttpRequest, response: T) -> T:
    """Set the headers of what was noted on a request, if anything was."""
    found = noted_of(request)
    if found is None or found.status is None or not isinstance(response, HttpResponseBase):
        return response
    if found.stamped is None or found.stamped() is not response:
        set_headers(
            found.status,
            response.headers,
            spoken_to(request),
            response.status_code,
            original=found.original,
        )
    return response


def set_headers(
    status: HeaderStatus | None,
    headers: ResponseHeaders | dict[str, str],
    spoken: Spoken,
    code: int,
    *,
    original: str = "",
    problem: Problem | None = None,
) -> None:
    """Set the headers of a status among those of a response with this `code`.

    `None`: it is about no key. `problem`: the response tells of it. A view's own headers, perhaps
    copied from another service, are not about this key. An observed response keeps them: all of it
    but the status is as without us.
    """
    if status is HeaderStatus.OBSERVED:
        headers[HEADER] = status.value
        return
    word = "" if status is None else status.value
    answer = Answer(word, code, spoken.sent, original, problem)
    ours = {**_UNSET, **spoken.profile.headers(answer), HEADER: word}
    if status is HeaderStatus.DEGRADED:
        ours[DEGRADED] = "true"
    for name, value in ours.items():
        if value:
            headers[name] = value
        else:
            headers.pop(name, None)
