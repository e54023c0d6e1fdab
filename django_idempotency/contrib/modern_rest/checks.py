"""Checks of django-modern-rest's controllers, which the middleware cannot guard."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage

from ...api import Finding, setting


class E148(Finding):
    """IDEMPOTENCY["REQUIRED"] is set, and IdempotencyMiddleware cannot guard %(view)s, a controller
    of django-modern-rest, whose authentication comes after it. An unsafe request to it raises.

    Put @idempotent() on its methods, or @idempotency_exempt.
    """


class W148(Finding):
    """IdempotencyMiddleware does not guard %(view)s, a controller of django-modern-rest, whose
    authentication comes after it: a request with a key runs unguarded.

    Put @idempotent() on each method that must not run twice, and @idempotency_exempt on the others;
    or %(silence)s.
    """


def check_view(view: str) -> Iterator[CheckMessage]:
    """Say that a controller with an endpoint without a guard runs unguarded, or raises."""
    yield (E148 if setting("REQUIRED") is True else W148)(view=view)
