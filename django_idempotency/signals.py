"""Signals: the events of a key.

Receivers get `operation` (its `ticket`, `record` and `attempt`), `request` (or `None`) and `error` (or `None`). They
are called in the thread or task of the operation, except for a `lost` that the heartbeat detects and the end of a
`deferred` settle: one thread per process sends those. What a receiver raises is logged and changes nothing. `completed`
and `released` of an `atomic` operation are sent after COMMIT.

`unguarded` is about a request that asked to be guarded and is not: its `operation` is `None`, and `reason` is the code
of why. `observed` is about a request that a guard with `mode="observe"` has let through: its `operation` is `None`, too,
and `reason` says what the guard would have done.

`duplicate_found` is no event of a key. `manage.py idempotency_suspects` sends it for each `suspect` (see
`contrib.suspects.groups.Suspect`); the sender is the model.
"""

from django.dispatch import Signal

claimed = Signal()
replayed = Signal()
busy = Signal()
mismatched = Signal()
unreadable = Signal()
taken_over = Signal()
resumed = Signal()
completed = Signal()
released = Signal()
suspended = Signal()
deferred = Signal()
flooded = Signal()
suspected = Signal()
lost = Signal()
unavailable = Signal()
unguarded = Signal()
observed = Signal()

duplicate_found = Signal()
