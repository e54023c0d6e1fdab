"""A cache that does not respond refuses nothing: it is asked about more than idempotency promises,
so the request goes on, and the log says so.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("django_idempotency")


def report_unscreened(error: Exception) -> None:
    """Log that the cache did not respond."""
    facts = {"event": "unscreened", "error": type(error).__name__}
    logger.warning(
        "Unscreened: the cache did not respond.", extra={"idempotency": facts}, exc_info=error
    )
