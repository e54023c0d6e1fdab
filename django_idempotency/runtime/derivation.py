"""Stable keys for downstream calls: the same on every attempt of an operation, and not
guessable.
"""

from __future__ import annotations

from uuid import UUID

from .. import conf
from ..core import rules
from ..core.hashing import derived_key, keyed, next_operation, secret_id
from ..core.lifetime import remembered
from ..core.records import Record
from ..engine.operation import Operation
from ..errors import OperationUnknown, SecretUnknown


class Unstored(Operation):
    """What a work runs under while nothing is stored, such as while idempotency is off: always a
    first attempt.
    """

    def __init__(self, scope: str, key: str) -> None:
        self._scope = scope
        self._key = key

    @property
    def key(self) -> str:
        """The key that would be used; a new one if the request has no valid key."""
        return self._key

    @property
    def attempt(self) -> int:
        """Always 1: no other attempt is known."""
        return 1

    @property
    def scope(self) -> str:
        """The scope that keys are derived for."""
        return self._scope

    def derived(self, label: str) -> str:
        """Return 64 hex digits, the same for this label and this key, but other than those of a
        stored run.
        """
        return derived_key(
            conf.derive_secret(),
            label,
            scope=self.scope,
            key=self.key,
            operation=_NO_OPERATION,
            request=b"",
        )


#: No record has this id.
_NO_OPERATION = UUID(int=0)


def blinded(purpose: str, *parts: bytes) -> str:
    """Return 64 hex digits that stand for some values, and by which nobody can guess them.

    It is an HMAC under the secret that keys are derived with. `purpose` keeps the hashes of two
    uses apart.
    """
    return keyed(conf.derive_secret(), (b"blinded", purpose.encode(), *parts)).hexdigest()


def derive(operation: Operation, label: str) -> str:
    """Return the downstream key of a label, 64 hex digits: HMAC over scope, key, operation, request
    and label.

    Raises `SecretUnknown` when the secret of attempt 1 is gone, and `OperationUnknown` when the
    call runs without its store: another key could repeat an effect that has already happened.
    """
    if isinstance(operation, Unstored):
        return operation.derived(label)
    ticket = operation.ticket
    record = operation.record
    run = operation.run
    if record is None or run is None:
        raise OperationUnknown
    first = ticket.secret_id if run.new_life else record.secret_id
    # The ticket's digest: after a refusal the record has none, and this request counts.
    request = ticket.digest
    which = rules.operation_of(record, run)
    return derived_key(
        _secret(first), label, scope=ticket.scope, key=ticket.key, operation=which, request=request
    )


def is_usable(operation: Operation, label: str) -> bool:
    """Does a provider still know the derived key of a label, if an earlier attempt has used it?

    A durable execution that was resumed knows what it has done, and derives its keys again.
    """
    if isinstance(operation, Unstored):
        return True
    assert operation.run is not None, "derive() has asked"
    return operation.run.resumed or remembered(operation.age(), lifetime=conf.lifetime(label))


def derived_by(record: Record, label: str, *, next_life: bool = False) -> str:
    """Return what the operation of a record has derived for a label, for an operator.

    `next_life`: what the same request derives after the record has expired, if the secret is the
    same. Raises `SecretUnknown`, and `OperationUnknown` for a record without a digest: the request
    was refused, and another body would derive another key.
    """
    if not record.digest:
        raise OperationUnknown
    return derived_key(
        _secret(record.secret_id),
        label,
        scope=record.scope,
        key=record.key,
        operation=next_operation(record.operation) if next_life else record.operation,
        request=record.digest,
    )


def _secret(named: str) -> str | bytes:
    """Return the secret with this id. Raises `SecretUnknown`."""
    for secret in conf.derive_secrets():
        if secret_id(secret) == named:
            return secret
    raise SecretUnknown
