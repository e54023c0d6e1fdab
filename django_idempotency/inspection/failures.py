"""Why a store did not answer or cannot be had, for an operator: never for a client."""

from __future__ import annotations

from collections.abc import Collection

from django.core.exceptions import ImproperlyConfigured
from django.utils.connection import ConnectionDoesNotExist

from ..errors import ConfigurationError, OutcomeUnknown, StoreUnavailable

#: What is raised where the settings ask for something that is not there, such as a driver or a database.
MISCONFIGURED = (ImproperlyConfigured, ConfigurationError, ConnectionDoesNotExist, ImportError)


def reason(error: StoreUnavailable | OutcomeUnknown) -> str:
    """Return what the store says of it, where it says more than usual, and the driver's own words; on one line."""
    own = str(error) if str(error) != str(type(error)()) else ""
    cause = error.__cause__
    theirs = "" if cause is None else " ".join(str(cause).split()) or type(cause).__name__
    return f"{own} ({theirs})" if own and theirs else own or theirs or "nobody knows why"


def advice(error: Exception, alias: str, known: Collection[str]) -> str:
    """Return what is wrong with the settings, and what to type; an alias that is not there says so itself."""
    if alias not in known:
        return str(error)
    return f"The store {alias!r} cannot be used: {error}\nType: manage.py check, which says what to change."
