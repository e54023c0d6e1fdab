"""The providers that are called: `IDEMPOTENCY["PROVIDERS"]`, alias → options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ... import conf
from .models import LONGEST

#: Every option of a provider, and its default. `LIFETIME` has none.
OPTIONS: dict[str, Any] = {
    "LIFETIME": None,
    "HEADER": "Idempotency-Key",
    "CLIENT": None,
    "RETENTION": timedelta(days=30),
    "MAX_BODY": 1024 * 1024,
}


#: The longest deadline of a transport (seconds).
LONGEST_DEADLINE = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider, as the settings describe it."""

    alias: str
    #: How long it remembers a key, at least: what it publishes.
    lifetime: timedelta
    #: The header that carries the key.
    header: str
    #: Dotted path of a function that returns a client whose transport is ours; `None`: its calls cannot be resumed.
    client: str | None
    #: How long an ended call is kept, and its name is used up.
    retention: timedelta
    #: The largest response body that is stored (bytes).
    max_body: int

    def new_client(self) -> Any:
        """Return a new sync client. Raises `ImproperlyConfigured` without one, and what importing or calling it raises."""
        if self.client is None:
            raise ImproperlyConfigured(
                f'Type a "CLIENT" in {conf.NAME}["PROVIDERS"]["{self.alias}"]: without one its calls cannot be resumed.'
            )
        return import_string(self.client)()


def provider(alias: str) -> Provider:
    """Return a provider by its alias. Raises `ImproperlyConfigured` for one that is missing or invalid."""
    found = conf.get("PROVIDERS")
    if not isinstance(found, Mapping) or alias not in found:
        raise ImproperlyConfigured(
            f'Type the provider {alias!r} in {conf.NAME}["PROVIDERS"], with its "LIFETIME": timedelta(hours=24), or '
            "whatever it publishes."
        )
    if (problem := problem_of(alias, found[alias])) is not None:
        raise ImproperlyConfigured(f'{conf.NAME}["PROVIDERS"]["{alias}"]: {problem}.')
    return Provider(alias=alias, **{name.lower(): value for name, value in {**OPTIONS, **found[alias]}.items()})


def problem_of(alias: Any, options: Any) -> str | None:
    """Return what is wrong with the settings of a provider; `None`: nothing. Imports nothing."""
    if not isinstance(alias, str) or not 0 < len(alias) <= LONGEST:
        return f"an alias is text of 1 to {LONGEST} characters"
    if not isinstance(options, Mapping):
        return f"it is a {type(options).__name__}, not a dict"
    if unknown := sorted(map(str, options.keys() - OPTIONS.keys())):
        return f"{unknown[0]!r} is not one of its options, which are {', '.join(OPTIONS)}"
    given = {**OPTIONS, **options}
    return next((words for name, (valid, words) in _VALID.items() if not valid(given[name])), None) or (
        None if given["RETENTION"] >= given["LIFETIME"] else '"RETENTION" is shorter than "LIFETIME"'
    )


def _is_span(value: Any) -> bool:
    return isinstance(value, timedelta) and value > timedelta(0)


#: Option → is it valid? And what to say if not.
_VALID: dict[str, tuple[Callable[[Any], bool], str]] = {
    "LIFETIME": (_is_span, '"LIFETIME" is what the provider publishes, such as timedelta(hours=24)'),
    "HEADER": (lambda value: isinstance(value, str) and value.isascii() and value != "", '"HEADER" names a header'),
    "CLIENT": (lambda value: value is None or (isinstance(value, str) and "." in value), '"CLIENT" is a dotted path'),
    "RETENTION": (_is_span, '"RETENTION" is a timedelta, such as timedelta(days=30)'),
    "MAX_BODY": (lambda value: type(value) is int and value >= 0, '"MAX_BODY" is a number of bytes'),
}
