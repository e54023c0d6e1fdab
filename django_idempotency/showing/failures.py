"""Why a store did not answer, for an operator: never for a client."""

from __future__ import annotations

from ..errors import StoreUnavailable


def reason(error: StoreUnavailable) -> str:
    """Return what the store says of it, where it says more than usual, and the driver's own words; on one line."""
    own = str(error) if str(error) != str(StoreUnavailable()) else ""
    cause = error.__cause__
    theirs = "" if cause is None else " ".join(str(cause).split()) or type(cause).__name__
    return f"{own} ({theirs})" if own and theirs else own or theirs or "nobody knows why"
