"""What happened to a key, for those who want to know.

Receivers get `operation` (its `ticket`, `record` and `attempt`), `request` (or `None`) and `error` (or `None`). They are
called where the operation runs, but for a `lost` that the heartbeat's thread finds out; an exception of theirs is logged
and changes nothing. `completed` and `released` of an `atomic` operation are sent after COMMIT.

`unguarded` is about a request that no operation guards although it asked for it: its `operation` is `None`, and `reason`
is the code of why.
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
lost = Signal()
unavailable = Signal()
unguarded = Signal()
