"""For the settings of django-cors-headers: what browsers of other origins must be allowed to send,
and to read.

    CORS_ALLOW_HEADERS = (*default_headers, *ALLOW_HEADERS)
    CORS_EXPOSE_HEADERS = EXPOSE_HEADERS

Can be imported in a settings module.
"""

from __future__ import annotations

from ...http.exchange import DEGRADED, HEADER, ORIGINAL, REPLAYED

#: The header that carries the key, in the lower case of `corsheaders.defaults`. A `HEADER` of your
#: own goes in its place.
ALLOW_HEADERS: tuple[str, ...] = ("idempotency-key",)
#: The headers that we set, and those without which a client cannot retry well.
EXPOSE_HEADERS: tuple[str, ...] = (
    HEADER,
    REPLAYED,
    ORIGINAL,
    DEGRADED,
    "Retry-After",
    "Location",
    "Link",
)
