"""What the clients of other APIs expect on the wire: `Policy(profile="stripe")`, or
`profile=replace(STRIPE, …)`.

Each profile says what its API has published; where that is silent, our default holds.
"""

from __future__ import annotations

from ...core.profiles import DEFAULT, FORM, IETF, Profile
from . import errors
from .commerce import COMMERCE

_SUCCESS = frozenset(range(200, 400))
_CLIENT_ERRORS = frozenset(range(400, 500))
_SERVER_ERRORS = frozenset(range(500, 600))
#: A refusal that the same request may not meet again.
_TRANSIENT = frozenset({401, 403, 408, 409, 425, 429})
_UUID = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_UUID4 = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-4[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"
_UUID7 = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-7[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"

#: Stripe, v1. Everything is kept once the endpoint has begun, 500 included; refusals before that
#: are not.
STRIPE = Profile(
    name="stripe",
    spelling="bare",
    mismatch_status=400,
    remembers=_SUCCESS | (_CLIENT_ERRORS - _TRANSIENT - {400, 415}) | _SERVER_ERRORS,
    echoes=frozenset(range(100, 600)),
    retry_headers=("Retry-After", "Stripe-Should-Retry"),
    errors=errors.stripe,
)

#: Adyen. Only what may succeed later is not kept, and says so.
ADYEN = Profile(
    name="adyen",
    spelling="bare",
    max_length=64,
    running_status=422,
    remembers=_SUCCESS | (_CLIENT_ERRORS - _TRANSIENT),
    echoes=frozenset({200, 201, 202, 422}),
    retry_headers=("Retry-After", "Transient-Error"),
    errors=errors.adyen,
)

#: PayPal, Orders v2. A repeat of what was created answers 200.
PAYPAL = Profile(
    name="paypal",
    field="PayPal-Request-Id",
    spelling="bare",
    max_length=108,
    replays_as=((201, 200),),
    errors=errors.paypal,
)

#: Square, Payments.
SQUARE = Profile(
    name="square",
    carrier="body",
    field="idempotency_key",
    max_length=45,
    mismatch_status=400,
    errors=errors.square,
)

#: Repeatable Requests 1.0 (OASIS), as in Azure's guidelines. The window leaves room within a `ttl`
#: of a day.
REPEATABILITY = Profile(
    name="repeatability",
    field="Repeatability-Request-ID",
    spelling="bare",
    client_field="Repeatability-Client-ID",
    first_sent_field="Repeatability-First-Sent",
    window=12 * 60 * 60,
    ahead=5 * 60,
    mismatch_status=400,
    unsupported_status=501,
    remembers=_SUCCESS | _CLIENT_ERRORS,
    result="Repeatability-Result",
    errors=errors.odata,
)

#: Google's AIP-155. Only a success counts, and the nil UUID is no UUID4.
AIP155 = Profile(
    name="aip155",
    carrier="body",
    field="request_id",
    max_length=36,
    pattern=_UUID4,
    mismatch_status=400,
    remembers=_SUCCESS,
    errors=errors.google,
)

#: Zalando's guidelines, rule 230.
ZALANDO = Profile(
    name="zalando", spelling="bare", max_length=36, pattern=_UUID, mismatch_status=400
)

#: Apache Iceberg's REST catalog: a conflict is final there, and a server error never is.
ICEBERG = Profile(
    name="iceberg",
    spelling="bare",
    max_length=36,
    pattern=_UUID7,
    remembers=_SUCCESS | (_CLIENT_ERRORS - {401, 403, 408, 425, 429}),
    errors=errors.iceberg,
)

#: By name, with those of the core.
PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        *(DEFAULT, IETF, STRIPE, ADYEN, PAYPAL, SQUARE, REPEATABILITY, AIP155, ZALANDO, ICEBERG),
        *(*COMMERCE, FORM),
    )
}
