"""What happened to a key, for those who want to know.

Receivers get `operation` (its `ticket`, `record` and `attempt`), `request` (or `None`) and `error` (or `None`). They are
called where the operation runs, but for a `lost` that the heartbeat's thread finds out; an exception of theirs is logged
and changes nothing. `completed` and `released` of an `atomic` operation are sent after COMMIT.
"""

from django.dispatch import Signal

claimed = Signal()
replayed = Signal()
busy = Signal()
mismatched = Signal()
taken_over = Signal()
resumed = Signal()
completed = Signal()
released = Signal()
suspended = Signal()
lost = Signal()
unavailable = Signal()
