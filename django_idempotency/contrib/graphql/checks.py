"""Checks of GraphQL views, which the middleware cannot guard."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage

from ...api import Finding, setting


class E082(Finding):
    """IDEMPOTENCY["REQUIRED"] is set, and IdempotencyMiddleware cannot guard %(view)s, a GraphQL
    view: a replay would skip the checks of its resolvers. A POST to it raises.

    Put @idempotent(authorize_replay=…) on the class, or @idempotency_exempt.
    """


class W084(Finding):
    """IdempotencyMiddleware does not guard %(view)s, a GraphQL view: a replay would skip the checks
    of its resolvers. A mutation with a key runs unguarded.

    Put @idempotent(authorize_replay=…) on the class, or @idempotency_exempt; or %(silence)s.
    """


def check_view(view: str) -> Iterator[CheckMessage]:
    """Say that a view without a guard of its own runs unguarded, or raises."""
    yield (E082 if setting("REQUIRED") is True else W084)(view=view)
