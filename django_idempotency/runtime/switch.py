"""On or off: the environment variable IDEMPOTENCY_DISABLED, and what a test overrides it with.

Off means that the work runs as if we were not there: no key is judged, no store is asked, nothing is remembered.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from ..concurrency.forking import new_lock
from ..errors import ConfigurationError

logger = logging.getLogger("django_idempotency")

VARIABLE = "IDEMPOTENCY_DISABLED"
_ENCODED = os.environ.encodekey(VARIABLE)
YES = frozenset({"1", "y", "yes", "t", "true", "on"})
#: An empty variable is one that is not set.
NO = frozenset({"0", "n", "no", "f", "false", "off", ""})


def enabled() -> bool:
    """Is idempotency on? The innermost override says so, else the environment, as it is now: see of_environment()."""
    if overrides := _overrides:
        return overrides[-1].enabled
    return of_environment()


def of_environment() -> bool:
    """Is idempotency on, as far as the environment goes? Raises `ConfigurationError` when it says neither."""
    data = getattr(os.environ, "_data", None)  # past the Python around it: a twentieth of the time of a call (measured)
    raw = os.environ.get(VARIABLE) if data is None else data.get(_ENCODED)
    return raw is None or not _disabled(raw)


@lru_cache(maxsize=8)
def _disabled(raw: str | bytes) -> bool:
    text = os.fsdecode(raw)
    word = text.lower()
    if word in YES or word in NO:
        return word in YES
    raise ConfigurationError(
        f"{VARIABLE}={text[:80]!r} says neither yes nor no. Type {VARIABLE}=1 to run without idempotency, "
        f"{VARIABLE}=0 or nothing to have it."
    )


def warn_once() -> None:
    """Say once a process that the environment lets run unguarded what would be guarded. An override is meant so."""
    global _warned
    if _overrides:
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
    """Switch on or off while this is open, for the whole process: the threads of a live server see it too."""
    global _overrides  # noqa: PLW0603 - replaced, never changed, so that readers need no lock
    mine = _Override(enabled)
    with _changing:
        _overrides = (*_overrides, mine)
    try:
        yield
    finally:
        with _changing:
            _overrides = tuple(other for other in _overrides if other is not mine)


@dataclass(frozen=True, slots=True, eq=False)
class _Override:
    enabled: bool


_changing = new_lock()
_overrides: tuple[_Override, ...] = ()
_warned = False
