"""A key as a client sends it with a call of a tool."""

from __future__ import annotations

from typing import Any

from ...errors import KeyMalformed
from ...functions.names import validate_key


def well_formed(sent: Any) -> str:
    """Return a key. Raises `KeyMalformed`."""
    try:
        return validate_key(sent)
    except KeyMalformed:
        raise KeyMalformed(
            'The idempotency key is malformed. Send 1 to 255 printable ASCII characters as _meta["idempotency-key"], such as '
            "a UUID."
        ) from None
