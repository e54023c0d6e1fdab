"""What writes here writes to the database of the steps, or is refused: elsewhere its rows would be committed alone.

The statements of Django's other connections of this thread are looked at before they are sent. That costs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import connections

from ...errors import ConfigurationError
from ...stores.statement_texts import is_write, text_of


@contextmanager
def only_in(using: str, what: str) -> Iterator[None]:
    """Refuse to write to any other database than `using` inside the block. Raises `ConfigurationError` there."""
    here = connections[using]

    def look(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if is_write(text_of(sql, context["cursor"])):
            other = context["connection"].alias
            raise ConfigurationError(
                f"{what} writes to the database {other!r}, and its result is in {using!r}: one of them may be committed "
                "without the other. Let your routers put both into one database; or take the argument idempotency_key, under "
                "which the function is called again after a crash, and must not write twice."
            )
        return execute(sql, params, many, context)

    with ExitStack() as stack:
        for other in connections.all():
            if other is not here:  # a test's mirror is
                stack.enter_context(other.execute_wrapper(look))
        yield
