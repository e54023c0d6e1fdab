"""The providers that are called: `IDEMPOTENCY["PROVIDERS"]`, alias → options."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ...api import CALLER_ENDS, setting
from .models import LONGEST

#: The longest deadline of a transport (seconds).
LONGEST_DEADLINE = 300.0


def _is_span(value: Any) -> bool:
    return isinstance(value, timedelta) and value > timedelta(0)


def _is_header(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value != ""


def _is_path(value: Any) -> bool:
    return value is None or (isinstance(value, str) and "." in value)


def _option(default: Any, valid: Callable[[Any], bool], words: str) -> Any:
    """Declare an option: its default, is a value valid, and what it is, if not."""
    return field(default=default, metadata={"valid": valid, "words": words})


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider, as the settings describe it."""

    alias: str
    #: How long it remembers a key, at least: what it publishes.
    lifetime: timedelta = _option(
        None, _is_span, "is what the provider publishes, such as timedelta(hours=24)"
    )
    #: The header that carries the key.
    header: str = _option("Idempotency-Key", _is_header, "names a header")
    #: The header that says how long the caller waits; `None`: none does. See `headers()`.
    deadline_header: str | None = _option(
        None, lambda value: value is None or _is_header(value), "names a header"
    )
    #: Dotted path of a function that returns a client whose transport is ours; `None`: its calls
    #: cannot be resumed.
    client: str | None = _option(None, _is_path, "is a dotted path")
    #: Dotted path of a function that finds out what became of a call, before it is sent again;
    #: `None`: nobody does.
    lookup: str | None = _option(None, _is_path, "is a dotted path")
    #: How long an ended call is kept, and its name is used up.
    retention: timedelta = _option(
        timedelta(days=30), _is_span, "is a timedelta, such as timedelta(days=30)"
    )
    #: The largest response body that is stored (bytes).
    max_body: int = _option(
        1024 * 1024, lambda value: type(value) is int and value >= 0, "is a number of bytes"
    )

    def headers(self, key: str, left: float) -> dict[str, str]:
        """Return what an attempt carries: its key, and when nobody waits for it any more: `left`
        seconds from now, or earlier.

        A header whose name says that it is a deadline gets that as Unix time, and any other the
        seconds.
        """
        name = self.deadline_header
        if name is None:
            return {self.header: key}
        now = time.time()
        caller = CALLER_ENDS.get()
        left = left if caller is None else min(left, caller - now)
        since = now if "deadline" in name.lower() else 0.0
        return {self.header: key, name: f"{since + max(left, 0.0):.3f}"}

    def new_client(self) -> Any:
        """Return a new sync client.

        Raises `ImproperlyConfigured` without one, and what importing or calling it raises.
        """
        if self.client is None:
            raise ImproperlyConfigured(
                f'Type a "CLIENT" in IDEMPOTENCY["PROVIDERS"]["{self.alias}"]: without one '
                "its calls cannot be resumed."
            )
        return import_string(self.client)()


#: Every option of a provider: what is known of it, and its default. `LIFETIME` has none.
_DECLARED = {each.name.upper(): each.metadata for each in fields(Provider) if each.name != "alias"}
OPTIONS: dict[str, Any] = {
    each.name.upper(): each.default for each in fields(Provider) if each.name != "alias"
}


def provider(alias: str) -> Provider:
    """Return a provider by its alias.

    Raises `ImproperlyConfigured` for one that is missing or invalid.
    """
    found = setting("PROVIDERS")
    if not isinstance(found, Mapping) or alias not in found:
        raise ImproperlyConfigured(
            f'Type the provider {alias!r} in IDEMPOTENCY["PROVIDERS"], with its '
            '"LIFETIME": timedelta(hours=24), or '
            "whatever it publishes."
        )
    problem = problem_of(alias, found[alias])
    if problem is not None:
        raise ImproperlyConfigured(f'IDEMPOTENCY["PROVIDERS"]["{alias}"]: {problem}.')
    return Provider(
        alias=alias, **{name.lower(): value for name, value in {**OPTIONS, **found[alias]}.items()}
    )


def problem_of(alias: Any, options: Any) -> str | None:
    """Return what is wrong with the settings of a provider; `None`: nothing. Imports nothing."""
    if not isinstance(alias, str) or not 0 < len(alias) <= LONGEST:
        return f"an alias is text of 1 to {LONGEST} characters"
    if ":" in alias:
        return (
            "an alias has no colon: derive() takes what stands before one in a label as the alias"
        )
    if not isinstance(options, Mapping):
        return f"it is a {type(options).__name__}, not a dict"
    if unknown := sorted(map(str, options.keys() - OPTIONS.keys())):
        return f"{unknown[0]!r} is not one of its options, which are {', '.join(OPTIONS)}"
    given = {**OPTIONS, **options}
    for name, option in _DECLARED.items():
        if not option["valid"](given[name]):
            return f'"{name}" {option["words"]}'
    return (
        None
        if given["RETENTION"] >= given["LIFETIME"]
        else '"RETENTION" is shorter than "LIFETIME"'
    )
