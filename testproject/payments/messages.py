"""What messages request. consumer.py handles their delivery, this module their meaning."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_idempotency import idempotent_function

from . import work
from .network import Declined
from .work import Attempt


@idempotent_function(
    key="message_id",
    validate="payload",
    required=True,  # without an id, nothing could recognise a duplicate: refused
    # Longer than a message may lie anywhere, the dead letters included.
    expires_after=timedelta(days=7),
    keep_exceptions=Declined,  # an answer: the same for every delivery
)
def charge(message_id: str | None, payload: dict[str, Any]) -> int:
    """Charge a card, once a message. Returns the charge's number."""
    return work.charge(attempt=Attempt.of_call(), **payload).pk
