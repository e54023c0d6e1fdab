"""On or off: the environment variable IDEMPOTENCY_DISABLED, and what a test overrides it with.

Off means that the work runs as if we were not there: no key is validated, no store is used, nothing
is stored.
"""

from __future__ import annotations

import logging
import os
from typing import Protocol

from ..core.concurrency import new_lock
from ..errors import ConfigurationError

logger = logging.getLogger("django_idempotency")

VARIABLE = "IDEMPOTENCY_DISABLED"
YES = frozenset({"1", "y", "yes", "t", "true", "on"})
#: An empty variable counts as unset.
NO = frozenset({"0", "n", "no", "f", "false", "off", ""})


def enabled() -> bool:
    """Is idempotency on?

    The innermost override decides, or else the current environment: see of_environment().
    """
    if innermost := overrides:
        return innermost[-1].enabled
    return of_environment()


def of_environment() -> bool:
    """Is idempotency on by the environment?

    Raises `ConfigurationError` for a value that means neither yes nor no.
    """
    raw = os.environ.get(VARIABLE, "")
    word = raw.lower()
    if word in YES or word in NO:
        return word in NO
    raise ConfigurationError(
        f"{VARIABLE}={raw[:80]!r} means neither yes nor no. Type {VARIABLE}=1 to disable "
        "idempotency, "
        f"{VARIABLE}=0 or nothing to enable it."
    )


def warn_once() -> None:
    """Warn once per process that the environment disables idempotency.

    Overrides are deliberate and do not warn.
    """
    global _warned  # noqa: PLW0603 - once per process
    if overrides:
        return
    with _changing:
        first = not _warned
        _warned = True
    if first:
        logger.warning(
            "Idempotency is off: %s=%s is set, so retries run again. It is meant for tests "
            "and development.",
            VARIABLE,
            os.environ.get(VARIABLE, ""),
        )


class Override(Protocol):
    """What a test has switched: see `testing.override_idempotency`."""

    enabled: bool


_changing = new_lock()
#: Those in force, the innermost last. The tuple is replaced, never changed, so that readers need no
#: lock. Code that wants no call asks these and the environment's variable first.
overrides: tuple[Override, ...] = ()
_warned = False
