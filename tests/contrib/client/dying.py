"""A process that makes one call, and is killed on its way: `python -m tests.contrib.client.dying
POINT DATABASE URL NAME`.

POINT names what it has just done: `begun` (nothing yet), `committed` (its row), `received` (the
response), `ended` (its row again). At `sent` it waits for its parent to kill it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import django


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(point: str, database: str, url: str, name: str) -> None:
    from django.conf import settings
    from django.db import connection

    settings.DATABASES["default"]["NAME"] = database
    django.setup()
    from django_idempotency.contrib.client.ledger import Ledger

    from .live_client import new_client

    before, after = {
        "begun": ("start", None),
        "committed": (None, "start"),
        "received": ("end", None),
    }.get(point, (None, "end" if point == "ended" else None))
    for verb in ("start", "end"):
        real = getattr(Ledger, verb)

        def watched(self: Ledger, *given: Any, real: Any = real, verb: str = verb) -> Any:
            if before == verb:
                die()
            result = real(self, *given)
            if after == verb:
                die()
            return result

        setattr(Ledger, verb, watched)
    with new_client() as client:
        response = client.post(url, json={"amount": 2499}, extensions={"idempotency": name})
    sys.stdout.write(response.text)
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
