"""ATOMIC_REQUESTS around a guarded operation: the view of its path leaves them, and we open the same transactions."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import connections
from django.http import HttpRequest

from ...core.policy import Policy
from ...errors import ConfigurationError
from ...http.atomic_requests import ALL_ALIASES, NONE_OPENED, AllAliases, atomic_requests, excluded_aliases
from ...http.exchange import exchange_of, noted_of
from ...http.plan import plan_of


class Transactions:
    """The transactions of ATOMIC_REQUESTS around a guarded operation, opened as by Django, outside `decorate_view`."""

    def __init__(self, non_atomic: AbstractSet[str] = ALL_ALIASES) -> None:
        self._non_atomic = non_atomic
        self._stack = ExitStack()
        self.opened = NONE_OPENED

    @contextmanager
    def around(self, request: HttpRequest, policy: Policy) -> Iterator[None]:
        """Open them for as long as a view runs."""
        exchange = exchange_of(request)
        exchange.transactions = self
        try:
            with self._stack:
                self.begin(noted=plan_of(policy).may_have_key(request.META))
                yield
        finally:
            exchange.transactions = None

    def begin(self, *, noted: bool = False) -> None:
        """Open them; again after the guard has closed, for what decorators do with its response."""
        self.opened = self._stack.enter_context(atomic_requests(self._non_atomic, noted=noted))

    def end(self, *raised: Any) -> None:
        """End them before the view does, except one that a guard has taken over."""
        self._stack.__exit__(*raised)


def transactions_around(request: HttpRequest) -> Transactions:
    """Return the open ones; none in a view that is not ninja's."""
    exchange = noted_of(request)
    found: Transactions | None = None if exchange is None else exchange.transactions
    return Transactions() if found is None else found


def refuse_transaction(request: HttpRequest) -> None:
    """Refuse to claim inside the transaction of ATOMIC_REQUESTS, which our view of the path leaves."""
    callback = getattr(request.resolver_match, "func", None)
    left = excluded_aliases(callback)
    if not isinstance(left, AllAliases) and any(
        settings["ATOMIC_REQUESTS"] and alias not in left for alias, settings in connections.settings.items()
    ):
        raise ConfigurationError(
            "This operation is inside the transaction of ATOMIC_REQUESTS. Use functools.wraps() in every decorator "
            "around the views of the API."
        )
