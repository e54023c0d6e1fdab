"""How many new keys a client may make.

    look: too many? ── claim ── is the key new? ── count it ── the work
          └ refused                                └ too many: refused, and the claim is undone

A claim decides whether a key is new, so neither replays nor duplicates count. No more keys run than
a rate allows: its increment is one step of the cache. While a client is over its limit its keys are
looked up first, so that a flood writes no records.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from django.core.cache import caches

from ...api import Details, Extension, blinded, is_expired, realm_of, setting
from ...api.requests import Document, compiled, in_any_language, selected_facts
from ...errors import Problem, StoreUnavailable, TooManyKeys

logger = logging.getLogger("django_idempotency")

#: Before the name of what is counted.
_PREFIX = "django_idempotency:"
_RATE = re.compile(r"([1-9][0-9]*)/([1-9][0-9]*)?([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Rate(NamedTuple):
    """A number of keys in so many seconds."""

    limit: int
    seconds: int


class FreshKeys(Extension):
    """Refuses a new key (429 `too-many-keys`) of a client that has made too many.

    `rates`: "60/m", "1000/h", "5/10s", or a sustained rate and a burst, "60/m, 5/s". `by` says what
    is counted by: an expression over the request, or a function of it; `None`: the client's scope.
    The setting CACHE names the cache that counts. It must be shared by all processes, and count in
    one step: Redis or Memcached. Where it does not respond, nothing is refused. Raises `ValueError`
    for what is not a rate, or not an expression.
    """

    raises: tuple[type[Problem], ...] = (TooManyKeys,)
    takes_functions = False

    def __init__(self, rates: str, *, by: str | Callable[[Any], Any] | None = None) -> None:
        self.rates = tuple(_rates(rates))
        self.by = by
        if isinstance(by, str):
            compiled(by)

    def __repr__(self) -> str:
        return f"FreshKeys({', '.join(f'{limit}/{seconds}s' for limit, seconds in self.rates)})"

    def before_claim(self, call: Details, payload: Document) -> None:
        """Refuse a key that is new, if its client has made too many."""
        call.memory[self] = counted = self._counted(call, payload)
        wait = self._beyond(counted, increment=False)
        if wait is None:
            return
        try:
            known = call.stored()
        except StoreUnavailable:  # the claim meets it, too
            return
        if known is None or is_expired(known):
            _refuse(call, wait)

    def claimed(self, call: Details) -> None:
        """Count a key that is new. A later attempt, and a takeover, are of a known key."""
        assert call.run is not None, "its work is about to run"
        if call.attempt > 1 or call.run.takeover:
            return
        wait = self._beyond(call.memory[self], increment=True)
        if wait is not None:
            _refuse(call, wait)

    def _counted(self, call: Details, payload: Document) -> str:
        """Return the name of what is counted: an HMAC of the route, and of the client or of what
        `by` selects.
        """
        chosen = None
        if self.by is not None:
            chosen = selected_facts(payload, self.by, "FreshKeys(by=…)")
        whose = call.ticket.scope
        if chosen is not None:
            whose = realm_of(call.policy, call.request) or ""
        match = call.request.resolver_match
        route = call.request.path if match is None else match.route  # a path has ids
        named = (in_any_language(call.request, route), whose)
        return _PREFIX + blinded(
            "fresh keys",
            *(part.encode() for part in named),
            chosen or b"",
        )

    def _beyond(self, counted: str, *, increment: bool) -> int | None:
        """Return how long a client must wait that makes too many new keys (seconds); `None`: it
        does not.

        `increment`: this is one, and is counted.
        """
        for rate in self.rates:
            now = time.time()
            window = int(now // rate.seconds)
            name = f"{counted}:{rate.limit}:{rate.seconds}:{window}"
            try:
                count = _count(name, rate.seconds, increment=increment)
            except Exception as error:  # noqa: BLE001 - it is asked about more than is promised
                report_unscreened(error)
                continue
            if count > rate.limit:
                left = (window + 1) * rate.seconds - now
                return math.ceil(left)
        return None


def _refuse(call: Details, wait: int) -> NoReturn:
    call.report("flooded")
    # No frame keeps it: with its traceback it would keep the request.
    raise TooManyKeys(headers={"Retry-After": str(wait)})


def _rates(text: str) -> Iterator[Rate]:
    for part in text.split(","):
        found = _RATE.fullmatch(part.strip())
        if found is None:
            raise ValueError(
                f"FreshKeys({text!r}): {part.strip()!r} is not a rate. Type a number of keys per "
                'second, minute, hour or day, such as "60/m", "5/10s" or "1000/h"; or several of '
                'them, "60/m, 5/s".'
            )
        yield Rate(int(found[1]), int(found[2] or 1) * _SECONDS[found[3]])


def _count(name: str, seconds: int, *, increment: bool) -> int:
    """Return how many keys a window has, with this one."""
    cache = caches[setting("CACHE")]
    if not increment:
        return int(cache.get(name, 0)) + 1
    # Twice as long as the window: the clocks of two processes differ.
    if cache.add(name, 1, 2 * seconds):
        return 1
    return int(cache.incr(name))


def report_unscreened(error: Exception) -> None:
    """Log that the cache did not respond.

    It refuses nothing then: it is asked about more than idempotency promises.
    """
    facts = {"event": "unscreened", "error": type(error).__name__}
    logger.warning(
        "Unscreened: the cache did not respond.", extra={"idempotency": facts}, exc_info=error
    )
