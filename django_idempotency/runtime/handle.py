"""The running work's view of its own operation: `request.idempotency` in a view, `current_operation()` elsewhere."""

from __future__ import annotations

from uuid import UUID

from .. import conf
from ..core.hashing import derived_key
from ..core.policy import Duration, Policy, seconds
from ..engine.operation import Operation
from .derivation import derive

#: Used while idempotency is off. No record has this id.
_NO_OPERATION = UUID(int=0)


class OperationHandle:
    """One operation, as the work that runs under it sees it."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        #: See `ttl`.
        self.seconds: float | None = None

    @property
    def key(self) -> str:
        """The idempotency key: the client's, unquoted, or a selected or given one."""
        return self._operation.ticket.key

    @property
    def attempt(self) -> int:
        """The number of this run. Above 1, an earlier one failed, was refused or crashed; 0: the store is down."""
        return self._operation.attempt

    def derive(self, label: str) -> str:
        """Return a key to pass on to a provider: 64 hex digits, the same for this label on every attempt and takeover.

        A corrected request and a request after expiry get another. Raises `SecretUnknown`, and
        `OperationUnknown` where `on_store_failure="open"` lets the work run while the store is down.
        """
        return derive(self._operation, label)

    @property
    def lost(self) -> bool:
        """Has the `lease` of this run ended? Another may be running by now: stop if that still helps."""
        return self._operation.is_lost()

    @property
    def ttl(self) -> Duration | None:
        """How long this response is kept, from its completion; `None`: as declared, from the claim."""
        return self.seconds

    @ttl.setter
    def ttl(self, value: Duration) -> None:
        self.seconds = seconds(Policy(ttl=value).ttl)  # raises ValueError for an invalid duration


class SwitchedOff(OperationHandle):
    """The same while idempotency is off: always a first attempt, never stored. Setting `ttl` has no effect."""

    def __init__(self, scope: str, key: str) -> None:
        self._scope = scope
        self._key = key
        self.seconds = None

    @property
    def key(self) -> str:
        """The key that would be used; a new one if the request has no valid key."""
        return self._key

    @property
    def attempt(self) -> int:
        """Always 1: no other attempt is known."""
        return 1

    def derive(self, label: str) -> str:
        """Return 64 hex digits, the same for this label and this key, but other than those of a stored run."""
        return derived_key(
            conf.derive_secret(), label, scope=self._scope, key=self._key, operation=_NO_OPERATION, request=b""
        )

    @property
    def lost(self) -> bool:
        """Always `False`: there is no lease."""
        return False
