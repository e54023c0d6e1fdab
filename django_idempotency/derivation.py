"""Stable keys for what is called downstream: the same on every attempt, a guess for nobody."""

from __future__ import annotations

from . import conf
from .core.digest import derived_key, secret_id
from .engine import Operation
from .errors import SecretUnknown


def derive(operation: Operation, label: str) -> str:
    """Return the downstream key of a label, 64 hex digits: HMAC over scope, key and label.

    Raises `SecretUnknown` when the secret of attempt 1 is gone: another key could repeat an effect that has happened.
    """
    first = operation.ticket.secret_id
    if operation.attempt > 1 and operation.record is not None:
        first = operation.record.secret_id
    for secret in conf.derive_secrets():
        if secret_id(secret) == first:
            return derived_key(secret, operation.ticket.scope, operation.ticket.key, label)
    raise SecretUnknown
