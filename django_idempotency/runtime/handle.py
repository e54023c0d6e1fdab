"""What running work may ask about its own operation: `request.idempotency` in a view, `current_operation()` elsewhere."""

from __future__ import annotations

from uuid import UUID

from .. import conf
from ..core.hashing import derived_key
from ..core.policy import Duration, Policy, seconds
from ..engine.operation import Operation
from .derivation import derive

#: No record has it: what runs unremembered is part of no operation.
_NO_OPERATION = UUID(int=0)


class Handle:
    """One operation, as the work that runs under it sees it."""

    def __init__(self, operation: Operation) -> None:  # CurrentOperation does the same by itself
        self._operation = operation
        #: See `ttl`.
        self.seconds: float | None = None

    @property
    def key(self) -> str:
        """The idempotency key: the client's, unquoted, or the one that was selected or given."""
        return self._operation.ticket.key

    @property
    def attempt(self) -> int:
        """Which run this is. Above 1, an earlier one failed, was refused or crashed; 0: the store is down."""
        return self._operation.attempt

    def derive(self, label: str) -> str:
        """Return a key to send on to a provider: 64 hex digits, the same for this label at every attempt and takeover.

        A corrected request and a new life (the record had expired) get another. Raises `SecretUnknown`, and
        `OperationUnknown` where `on_store_failure="open"` lets the work run while the store is down.
        """
        return derive(self._operation, label)

    @property
    def lost(self) -> bool:
        """Has a `lease` ended under this run? Another may run by now: stop where that is still of use."""
        return self._operation.is_lost()

    @property
    def ttl(self) -> Duration | None:
        """How long this answer is remembered, from its completion; `None`: as declared, from the claim."""
        return self.seconds

    @ttl.setter
    def ttl(self, value: Duration) -> None:
        self.seconds = seconds(Policy(ttl=value).ttl)  # raises ValueError for what is no such duration


class SwitchedOff(Handle):
    """The same while idempotency is off: the first attempt, remembered by nobody. What is set is not listened to."""

    def __init__(self, scope: str, key: str) -> None:
        self._scope = scope
        self._key = key
        self.seconds = None

    @property
    def key(self) -> str:
        """The key that there would be; without a good one something new."""
        return self._key

    @property
    def attempt(self) -> int:
        """The first: no other is known."""
        return 1

    def derive(self, label: str) -> str:
        """Return 64 hex digits, the same for this label and this key; not those of a run that is remembered."""
        return derived_key(
            conf.derive_secret(), label, scope=self._scope, key=self._key, operation=_NO_OPERATION, request=b""
        )

    @property
    def lost(self) -> bool:
        """There is no lease to lose."""
        return False
