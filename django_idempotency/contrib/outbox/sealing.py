"""A message that waits is sealed with ENCRYPTION_KEYS, if there are any: payload and headers together, for its id.

Topic and key are not: relays order by them.
"""

from __future__ import annotations

import base64
import json
from typing import Final

from django.core.serializers.json import DjangoJSONEncoder

from ..at_rest.encryption import opened, sealing
from ..at_rest.sealed import CannotOpen
from .models import Message

#: The one header of a sealed message; its value holds payload and headers.
SEALED: Final = ":sealed"


def seal(message: Message) -> None:
    """Seal a message before it is written, if a key seals."""
    if (ring := sealing()) is not None:
        text = json.dumps([message.payload, message.headers], cls=DjangoJSONEncoder)
        sealed = ring.seal(text.encode(), *_place(message))
        message.payload, message.headers = None, {SEALED: base64.b64encode(sealed).decode()}


def open_message(message: Message) -> None:
    """Give a message that was read its payload and headers, in memory. Raises `CannotOpen`, and changes nothing then."""
    if not isinstance(message.headers, dict) or SEALED not in message.headers:
        return
    try:
        text = opened(base64.b64decode(message.headers[SEALED], validate=True), *_place(message))
        message.payload, message.headers = json.loads(text)
    except (ValueError, TypeError) as error:
        raise CannotOpen("it was changed") from error


def _place(message: Message) -> tuple[bytes, bytes]:
    return b"message", message.message_id.bytes
