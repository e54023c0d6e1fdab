"""Wings that an option of a policy asks for. The core knows their place, as Django's settings know that of a backend.

A plan that asks for one imports it. Without its folder the plan does not compile.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.policy import Resolved
    from ..core.records import Ticket
    from ..core.rules import Execute

#: The options that ask for a wing → its module.
WINGS = {
    "screening": ("fresh_keys or suspect", "django_idempotency.contrib.screening.screening"),
    "observe": ('mode="observe"', "django_idempotency.contrib.observe.observing"),
    "issued_keys": ('key_format="issued"', "django_idempotency.contrib.issued_keys.signing"),
}


def wing(name: str) -> Any:
    """Return the module of a wing. Raises `ConfigurationError` if it is not there."""
    option, module = WINGS[name]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(f"The policy says {option}, and this package is without {module}.") from error


class Listener(Protocol):
    """What listens to one call. Its methods ask a cache or a database: an async call runs them in a thread.

    A problem that `arrived()` or `claimed()` raises is the response, and the listener has ended the call's operation.
    """

    def arrived(self, call: Any) -> None:
        """Before the claim."""

    def claimed(self, call: Any, run: Execute) -> None:
        """After a claim by which the work is about to run."""

    def forget(self) -> None:
        """The claim is given back before the work."""

    def ended(self, call: Any) -> None:
        """After the call's record was settled."""


#: Makes the listener of a call, of its terms, the document of its request, and its ticket.
Listens: TypeAlias = "Callable[[Resolved, Any, Ticket], Listener | None]"
