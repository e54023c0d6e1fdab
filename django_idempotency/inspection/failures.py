"""Why work failed, and why a store did not respond or cannot be used: for an operator, never for a
client.
"""

from __future__ import annotations

from collections.abc import Collection

from django.core.exceptions import ImproperlyConfigured
from django.utils.connection import ConnectionDoesNotExist

from ..core.failures import Failure
from ..errors import ConfigurationError, OutcomeUnknown, StoreUnavailable

#: Raised if the settings ask for something missing, such as a driver or a database.
MISCONFIGURED = (ImproperlyConfigured, ConfigurationError, ConnectionDoesNotExist, ImportError)


def reason(error: StoreUnavailable | OutcomeUnknown) -> str:
    """Return the store's message, if more than the default, and the driver's message, on one
    line.
    """
    own = str(error) if str(error) != str(type(error)()) else ""
    cause = error.__cause__
    theirs = "" if cause is None else " ".join(str(cause).split()) or type(cause).__name__
    return f"{own} ({theirs})" if own and theirs else own or theirs or "the cause is unknown"


def described(failure: Failure) -> str:
    """Return how an attempt failed, on one line."""
    return f"raised {failure.error}" if failure.error else f"response {failure.status}"


def advice(error: Exception, alias: str, known: Collection[str]) -> str:
    """Return what is wrong with the settings, and what to type.

    The error of an unknown alias needs no addition.
    """
    if alias not in known:
        return str(error)
    return (
        f"The store {alias!r} cannot be used: {error}\nType: manage.py check, which shows what "
        "to change."
    )
