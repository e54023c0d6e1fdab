"""On or off: the environment variable IDEMPOTENCY_DISABLED, and what a test overrides it with.

Off means that the work runs as if we were not there: no key is validated, no store is used, nothing is stored.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..core.concurrency import new_lock
from ..errors import ConfigurationError

logger = logging.getLogger("django_idempotency")

VARIABLE = "IDEMPOTENCY_DISABLED"
YES = frozenset({"1", "y", "yes", "t", "true", "on"})
#: An empty variable counts as unset.
NO = frozenset({"0", "n", "no", "f", "false", "off", ""})


def enabled() -> bool:
    """Is idempotency on? The innermost override decides, or else the current environment: see of_environment()."""
    if innermost := overrides:
        return innermost[-1].enabled
    return of_environment()


def of_environment() -> bool:
    """Is idempotency on by the environment? Raises `ConfigurationError` for a value that means neither yes nor no."""
    raw = os.environ.get(VARIABLE, "")
    word = raw.lower()
    if word in YES or word in NO:
        return word in NO
    raise ConfigurationError(
        f"{VARIABLE}={raw[:80]!r} means neither yes nor no. Type {VARIABLE}=1 to disable idempotency, "
        f"{VARIABLE}=0 or nothing to enable it."
    )


def warn_once() -> None:
    """Warn once per process that the environment disables idempotency. Overrides are deliberate and do not warn."""
    global _warned
    if overrides:
        return
    with _changing:
        first, _warned = not _warned, True
    if first:
        logger.warning(
            "Idempotency is off: %s=%s is set, so retries run again. It is meant for tests and development.",
            VARIABLE,
            os.environ.get(VARIABLE, ""),
        )


@contextmanager
def overridden(*, enabled: bool) -> Iterator[None]:
    """Switch on or off in this block, for the whole process: the threads of a live server see it too."""
    global overrides  # noqa: PLW0603 - replaced, never changed, so that readers need no lock
    mine = _Override(enabled)
    with _changing:
        overrides = (*overrides, mine)
    try:
        yield
    finally:
        with _changing:
            overrides = tuple(other for other in overrides if other is not mine)


@dataclass(frozen=True, slots=True, eq=False)
class _Override:
    enabled: bool


_changing = new_lock()
#: Those in force. Code that wants no call asks these and the environment's variable first.
overrides: tuple[_Override, ...] = ()
_warned = False
