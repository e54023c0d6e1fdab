"""Check of ENCRYPTION_KEYS, while it is set."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from ...api import Finding
from .sealed import key_problem


class E098(Finding):
    """IDEMPOTENCY["ENCRYPTION_KEYS"] cannot seal: %(problem)s.

    Type "ENCRYPTION_KEYS": [os.environ["IDEMPOTENCY_KEY"]], 32 bytes in base64, which this prints:
    python -c "import base64, secrets; print(base64.b64encode(secrets.token_bytes(32)).decode())"
    """


class E099(Finding):
    """IDEMPOTENCY["ENCRYPTION_KEYS"] needs cryptography, which is not installed: no store can be
    used.

    Type pip install 'django-idempotency[encryption]', or leave "ENCRYPTION_KEYS" out.
    """


def check_keys(keys: Any) -> Iterator[CheckMessage]:
    """Check that the keys can seal."""
    problem = key_problem(keys)
    if problem is not None:
        yield E098(problem=problem)
    elif keys and importlib.util.find_spec("cryptography") is None:
        yield E099()
