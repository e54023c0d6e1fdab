"""A view that logs a person in under an idempotency key: it works once, and not for who taps twice
or goes back.
"""

from __future__ import annotations

import logging

from django.http import HttpRequest
from django.utils.encoding import escape_uri_path

logger = logging.getLogger("django_idempotency")

#: The views of which it has been said, by method and route.
_TOLD = set[tuple[str | None, str]]()


def report_login(request: HttpRequest) -> None:
    """Log that a guarded view logs a person in, once for each view."""
    match = request.resolver_match
    view = (request.method, "" if match is None else match.route)
    if view in _TOLD:
        return
    _TOLD.add(view)
    path = escape_uri_path(request.path)
    logger.warning(
        "%s %s logs a person in under an idempotency key. A replay sends no cookie, so a "
        "second tap ends logged out; and after "
        "the login the key is another person's, so that Back makes a second account. Log "
        "in behind another address, whose view "
        "has @idempotency_exempt. This is said once for each view.",
        request.method,
        path,
        extra={"idempotency": {"event": "login", "method": request.method, "path": path}},
    )
