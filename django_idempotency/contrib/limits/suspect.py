"""Was the same sent with another key?

    claim ── remember its facts ── the work ── settle: forget the facts if it failed
             └ known with another key: reported, or refused

The facts are kept in Django's cache, and only as HMACs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.core.cache import caches

from ...api import (
    DURATION,
    Details,
    Duration,
    Extension,
    SettledState,
    blinded,
    is_duration,
    seconds,
    setting,
)
from ...api.requests import FINAL, Document, compiled, in_any_language, refer_to, selected_facts
from ...errors import PossibleDuplicate, Problem
from .fresh_keys import report_unscreened

#: Before the name of what is remembered.
_PREFIX = "django_idempotency:facts:"
#: How a record is left whose request may come again.
_RELEASED = (SettledState.FREE, SettledState.BOUND, SettledState.FORGOTTEN)


class Suspect(Extension):
    """Reports or refuses a request whose facts are those of another key.

    `facts` is an expression over the request, or a function of it: what makes two requests of one
    client, method and path the same. A request without all of them is not compared. They are
    remembered for `within` seconds (or a `timedelta`), in the cache that the setting CACHE names,
    which all processes must share. `refuse`: the later request gets 409 `possible-duplicate`;
    otherwise it runs, and the signal `suspected` is sent. Raises `ValueError` for what is no
    expression or no duration.
    """

    asks_writes = True
    takes_functions = False

    def __init__(
        self, facts: str | Callable[[Any], Any], *, within: Duration = 300, refuse: bool = False
    ) -> None:
        if not is_duration(within):
            raise ValueError(f"Suspect(within={within!r}): within is {DURATION}.")
        self.facts = facts
        self.within = seconds(within)
        self.refuse = refuse
        self.raises: tuple[type[Problem], ...] = (PossibleDuplicate,) if refuse else ()
        if isinstance(facts, str):
            compiled(facts)

    def __repr__(self) -> str:
        return f"Suspect({self.facts!r}, within={self.within:g}, refuse={self.refuse})"

    def contradiction(self, says: Callable[[str], Any]) -> str | None:
        """Return why clients that share a scope cannot be refused."""
        if not self.refuse or says("anonymous") != "shared":
            return None
        return (
            f'Policy(extensions=[{self!r}], anonymous="shared"): clients without a login would '
            "learn of each other's requests. Identify the client: scope=…, or type refuse=False."
        )

    def before_claim(self, call: Details, payload: Document) -> None:
        """Select the facts."""
        chosen = selected_facts(payload, self.facts, "What Suspect(…) selects")
        if chosen is None:
            return
        ticket = call.ticket
        about = (ticket.scope, ticket.method, in_any_language(call.request, ticket.path))
        texts = (part.encode() for part in about)
        call.memory[self] = _PREFIX + blinded("facts", *texts, chosen)

    def claimed(self, call: Details) -> None:
        """Remember the facts. If they are those of another key, report or refuse the request.

        A request that takes over is not judged again: it is the same one. Its facts are remembered
        all the same, so that they are forgotten if this attempt fails.
        """
        assert call.run is not None, "its work is about to run"
        name = call.memory.get(self)
        if name is None:
            return
        first = self._remember(name, call.ticket.id)
        if first is None or call.run.takeover:
            return
        call.report("suspected")
        if self.refuse:
            refer_to(call.request, first)  # the problem names the first
            raise PossibleDuplicate(headers=FINAL)

    def ended(self, call: Details) -> None:
        """Forget the facts of a request that has failed, or was refused: what did nothing is no
        suspect, and a corrected request may have the same.
        """
        name = call.memory.pop(self, None)
        if name is None or not (call.left_as in _RELEASED or call.did_nothing):
            return
        try:
            cache = caches[setting("CACHE")]
            if cache.get(name) == call.ticket.id.hex:
                cache.delete(name)
        except Exception as error:  # noqa: BLE001 - they end by themselves
            report_unscreened(error)

    def _remember(self, name: str, record: UUID) -> UUID | None:
        """Remember the facts as those of this record.

        Return the record whose facts they are already, if there is one.
        """
        mine = record.hex
        try:
            cache = caches[setting("CACHE")]
            # Between the two steps the facts of the other may end: then these are the first.
            for _ in range(2):
                if cache.add(name, mine, self.within):
                    return None
                other = cache.get(name)
                if other == mine:
                    return None
                if other is not None:
                    return UUID(hex=other)
        except Exception as error:  # noqa: BLE001 - it is asked about more than is promised
            report_unscreened(error)
        return None
