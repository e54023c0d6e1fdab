"""Every decision about a call to a provider: what a response means, when to send again, and what a
name may do next.

A *call* is one logical request, whose name outlives its process. Its key is made once. `judge()`
reads a response, `pause()` says how long to wait, `ending()` in which state the call ends, and
`next_for()` what a request under a known name does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

from ...core.lifetime import remembered

#: Methods that change nothing. They pass without a name, a key or a row.
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
#: Responses after which the provider may or may not have done the work. 5xx are others.
UNCERTAIN: Final = frozenset({408, 409})
#: Responses of a provider that did nothing, and may do it later.
TOO_EARLY: Final = frozenset({425, 429})
#: The refusals of an operation itself, which a provider repeats under its key. Any other may come
#: from what stands before it, such as a 401 after a credential was changed: it says nothing of an
#: attempt whose response was lost.
OF_OPERATION: Final = frozenset({400, 402, 422})
#: Headers with which a provider says whether another attempt makes sense, the first one first. The
#: last is Adyen's.
SHOULD_RETRY: Final = ("stripe-should-retry", "x-should-retry", "transient-error")


class CallState(str, Enum):
    """How far a call has come. The values are stored."""

    OPEN = "open"  # being sent; or its process died
    SUCCEEDED = "succeeded"
    # the last response, or that there was no connection, says that nothing was carried out
    REFUSED = "refused"
    VOID = "void"  # nothing was carried out: a person has found that out
    UNKNOWN = "unknown"  # its process gave up, and reported an error
    HELD = "held"  # a person decides
    GIVEN_UP = "given_up"  # its step was given up, so nobody sends it any more


#: States of calls that need nobody any more.
ENDED: Final = (CallState.SUCCEEDED, CallState.REFUSED, CallState.VOID, CallState.GIVEN_UP)
#: States of calls whose outcome the provider may still tell.
UNFINISHED: Final = (CallState.OPEN, CallState.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one attempt says about its call."""

    #: How the call ends if there is no further attempt.
    state: CallState
    #: Does another attempt make sense?
    retry: bool
    #: Is a refusal the operation's own?
    of_operation: bool = False


#: The request did not leave this host: no connection was made.
NOT_SENT: Final = Verdict(state=CallState.REFUSED, retry=True)
#: The connection broke, or no response came in time.
BROKEN: Final = Verdict(state=CallState.UNKNOWN, retry=True)


def judge(status: int, headers: Mapping[str, str]) -> Verdict:
    """Say what a response means. Names of headers are in lower case.

    None proves that nothing was carried out: a transport or a proxy may have sent the request
    before, and hidden that.
    """
    if 200 <= status < 300:
        return Verdict(state=CallState.SUCCEEDED, retry=False)
    # 303 See Other is how many respond to a POST that they carried out: its key stays.
    if status < 400:
        return Verdict(state=CallState.REFUSED, retry=False)
    uncertain = status in UNCERTAIN or status >= 500
    told = _should_retry(headers)
    retry = (uncertain or status in TOO_EARLY) if told is None else told
    if uncertain or (retry and status not in TOO_EARLY):
        return Verdict(state=CallState.UNKNOWN, retry=retry)
    return Verdict(state=CallState.REFUSED, retry=retry, of_operation=status in OF_OPERATION)


def _should_retry(headers: Mapping[str, str]) -> bool | None:
    for name in SHOULD_RETRY:
        value = headers.get(name, "").strip().lower()
        if value in ("true", "false"):
            return value == "true"
    return None


def ending(verdict: Verdict, *, clean: bool, resuming: bool = False) -> CallState:
    """Say in which state a call ends.

    `clean`: every attempt before this one was refused, too, or not sent.

    `resuming`: a call that nobody waits for stays open, so that it is sent again later.
    """
    # Such a refusal says nothing of an attempt before it.
    doubtful = verdict.retry or not verdict.of_operation
    if verdict.state is CallState.UNKNOWN or (
        verdict.state is CallState.REFUSED and doubtful and not clean
    ):
        return CallState.OPEN if resuming else CallState.UNKNOWN
    return verdict.state


def stays_clean(verdict: Verdict, *, clean: bool) -> bool:
    """Was every attempt refused, this one included?"""
    return clean and verdict.state is CallState.REFUSED


def retry_after(value: str | None, *, now: datetime) -> float:
    """Read Retry-After, seconds or a date (RFC 9110 section 10.2.3), as seconds; 0 for none and for
    an invalid one.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:10]), 10**9))
    try:
        date = parsedate_to_datetime(text)
        return max(0.0, (date.replace(tzinfo=date.tzinfo or timezone.utc) - now).total_seconds())
    except (ValueError, OverflowError):
        return 0.0


def pause(
    retry: int, *, floor: float, base: float, longest: float, random: Callable[[], float]
) -> float:
    """Return the seconds before the retry with this number, from 0: what the provider asks for, and
    full jitter.

    The jitter comes on top: clients that were all asked to wait five seconds do not come back
    together.
    """
    return floor + random() * min(longest, base * 2.0 ** min(retry, 32))


class Next(Enum):
    """What a request under a name does."""

    #: Send it, with a new key: it is the first, or a person says that nothing was carried out.
    FIRST = "first"
    #: Send it again with the stored key.
    AGAIN = "again"
    #: Return the stored response, and send nothing.
    REPLAY = "replay"
    #: Look it up first: the project can find out what became of it.
    ASK = "ask"
    #: Refuse it: this name belongs to another request.
    MISMATCH = "mismatch"
    #: Refuse it: the provider may have forgotten the key, so a person decides.
    HOLD = "hold"
    #: Refuse it: its step was given up.
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCall:
    """What is stored of a call, as far as decisions need it."""

    state: CallState
    #: Of its request; empty: it was erased.
    digest: bytes
    #: How long ago its key was first sent.
    age: timedelta


def next_for(
    known: KnownCall | None,
    *,
    digest: bytes,
    lifetime: timedelta,
    margin: timedelta,
    asks: bool = False,
) -> Next:
    """Say what a request with this digest does under a name of which `known` is stored.

    `lifetime` is how long the provider remembers a key; `margin`, how long an attempt that begins
    now may take; `asks`, can an outcome that is unknown be looked up, and has it not been?
    """
    if known is None or known.state is CallState.VOID:
        return Next.FIRST
    # Whose response is gone, too.
    erased = known.digest == b"" and known.state is CallState.SUCCEEDED
    if known.digest != digest and not erased:
        return Next.MISMATCH
    if known.state is CallState.GIVEN_UP:
        return Next.STOP
    if known.state is CallState.SUCCEEDED:
        return Next.REPLAY
    if asks and known.state in UNFINISHED:
        return Next.ASK
    forgotten = not remembered(known.age, lifetime=lifetime, margin=margin)
    return Next.HOLD if known.state is CallState.HELD or forgotten else Next.AGAIN
