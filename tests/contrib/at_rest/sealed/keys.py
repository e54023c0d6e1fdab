"""Keys of tests."""

from __future__ import annotations

import base64

FIRST, SECOND = (base64.b64encode(letter * 32).decode() for letter in (b"a", b"b"))
