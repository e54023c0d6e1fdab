"""Signals: the events of a key.

Receivers get `operation` (its `ticket`, `record` and `attempt`), `request` (or `None`) and `error`
(or `None`). They are called in the thread or task of the operation, except for a `lost` that the
heartbeat detects and the end of a `deferred` settle: one thread per process sends those. What a
receiver raises is logged and changes nothing. `completed` and `released` of an `atomic` operation
are sent after COMMIT.

`unguarded` is about a request that asked to be guarded and is not: its `operation` is `None`, and
`reason` is the code of why. `observed` is about a request that a guard with `mode=OBSERVE` has
let through: its `operation` is `None`, too, and `reason` says what the guard would have done.

`duplicate_found` is no event of a key. `manage.py idempotency_suspects` sends it for each `suspect`
(see `contrib.suspects.searching.Suspect`); the sender is the model.
"""

import logging

from django.dispatch import Signal


def _(text: str) -> str:
    """Mark a text for translation, where the trail shows it; the log has it as it is.

    Needs no settings.
    """
    return text


#: Name → event.
EVENTS: dict[str, "Event"] = {}


class Event(Signal):
    """What may happen to a key: a signal, and all that the log and the audit trail say of it."""

    def __init__(self, name: str, level: int, sentence: str, *, colour: str = "") -> None:
        """`level`: a warning needs attention; an error may cost money.

        `colour` is the status of records whose colour it has in the audit trail; "": it is not
        written there.
        """
        super().__init__()
        self.name = name
        self.level = level
        self.sentence = sentence
        self.colour = colour
        EVENTS[name] = self


DEBUG = logging.DEBUG
INFO = logging.INFO
WARNING = logging.WARNING
ERROR = logging.ERROR

claimed = Event("claimed", DEBUG, _("Claimed: the work runs."), colour="running")
replayed = Event(
    "replayed", DEBUG, _("Replayed: the stored response was returned."), colour="completed"
)
busy = Event("busy", INFO, _("Busy: another request with this key is running."), colour="free")
contended = Event(
    "contended",
    WARNING,
    _("Contended: other transactions were in the way; the work did not run."),
    colour="free",
)
mismatched = Event(
    "mismatched",
    WARNING,
    _("Mismatched: the key was used for a different request."),
    colour="failed",
)
late = Event(
    "late", INFO, _("Late: the key was used, and its response is no longer given."), colour="failed"
)
unreadable = Event(
    "unreadable",
    ERROR,
    _("Unreadable: the record is damaged; the work is not run again."),
    colour="abandoned",
)
taken_over = Event(
    "taken_over", WARNING, _("Taken over: an earlier owner did not finish."), colour="failed"
)
resumed = Event("resumed", DEBUG, _("Resumed: a durable execution continues."), colour="running")
completed = Event("completed", DEBUG, _("Completed: the response is stored."), colour="completed")
released = Event("released", INFO, _("Released: the key is free again."), colour="failed")
suspended = Event(
    "suspended", DEBUG, _("Suspended: the key waits for its durable execution."), colour="running"
)
deferred = Event(
    "deferred",
    WARNING,
    _("Deferred: the store could not write the settle; it is retried until the lease ends."),
    colour="failed",
)
#: Not in the trail: a client that makes too many keys must not make as many rows.
flooded = Event(
    "flooded", WARNING, "Flooded: a client makes too many new keys; this one is refused."
)
suspected = Event(
    "suspected", WARNING, _("Suspected: the same was sent with another key."), colour="failed"
)
lost = Event(
    "lost",
    ERROR,
    _("Lost: the record was not settled; it is taken over after its lease."),
    colour="abandoned",
)
unavailable = Event(
    "unavailable", ERROR, _("Unavailable: the store cannot be used."), colour="abandoned"
)
#: INFO where that is intended.
unguarded = Event("unguarded", WARNING, "%s %s runs unguarded: %s.")
#: Its level depends on what the guard would have done.
observed = Event("observed", WARNING, "%s %s was only observed. A guard: %s.")

duplicate_found = Signal()
