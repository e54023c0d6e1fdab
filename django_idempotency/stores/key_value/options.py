"""An option that stores of this kind share."""

from __future__ import annotations

from typing import Any

#: The longest `timeout`, in seconds. After that, the client of the request has given up.
MAX_TIMEOUT = 60


def refuse_timeout(timeout: Any, *, usual: float) -> None:
    """Raise `ValueError` for an invalid timeout, before a request does."""
    if type(timeout) not in (int, float) or not 0 < timeout <= MAX_TIMEOUT:
        raise ValueError(
            f'"timeout" is seconds, above 0 and at most {MAX_TIMEOUT}, such as {usual}; not '
            f"{timeout!r}."
        )
