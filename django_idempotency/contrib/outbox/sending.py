"""Write a message into the caller's transaction."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import router

from ...errors import OutsideTransaction
from ...runtime.transactions import in_open_transaction
from ...stores.base import utcnow

#: The longest topic and the longest key (characters).
LONGEST = 255
#: U+0000 as JSON writes it, which PostgreSQL refuses.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def send(
    topic: str,
    payload: Any,
    *,
    key: str = "",
    headers: Mapping[str, Any] | None = None,
    using: str | None = None,
) -> UUID:
    """Write a message that is published once the open transaction of the database `using` has
    committed.

    `payload` and `headers` are JSON, or types that Django's encoder converts: dates, `Decimal`,
    `UUID`. Messages with the same `key` are published in order. Returns the message's id, which
    stays the same however often the message arrives. Raises `OutsideTransaction` without an open
    transaction, and `ValueError` or `TypeError` for an invalid message.
    """
    from .models import SEALED, Message  # not above: loads the model

    if not topic or len(topic) > LONGEST:
        raise ValueError(f"A topic has 1 to {LONGEST} characters: {topic[:LONGEST]!r}.")
    if len(key) > LONGEST or key.isspace():
        raise ValueError(
            f"A key has up to {LONGEST} characters, not only spaces. Use a digest, or leave it out."
        )
    if headers is not None and SEALED in headers:
        raise ValueError(f"The header {SEALED!r} marks sealed messages.")
    alias = router.db_for_write(Message) if using is None else using
    if not in_open_transaction(alias):
        raise OutsideTransaction
    message = Message(
        topic=topic, payload=payload, key=key, headers=dict(headers or {}), created_at=utcnow()
    )
    _require_json(topic, key, message.payload, message.headers)
    message.seal()
    message.save(force_insert=True, using=alias)
    return message.message_id


def _require_json(*values: Any) -> None:
    """Raise `ValueError` or `TypeError` for data that the database would reject, before that breaks
    the transaction.
    """
    text = json.dumps(values, cls=DjangoJSONEncoder, allow_nan=False, ensure_ascii=False)
    text.encode()  # raises for half a surrogate pair
    if _NUL.search(text):
        raise ValueError(
            "The character U+0000 is in the message, and PostgreSQL's JSON cannot hold it."
        )
