"""What the clients of an API expect on the wire: `Policy(profile="stripe")`, or a profile of your own by `replace()`.

A profile is data only; `http` acts on it. Each of those shipped says what its API has published; where that is silent, our
default holds.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any

#: Where a request carries its key.
CARRIERS = ("header", "body", "query")
#: How a header spells it: bare or quoted, as it is, or only as a string of RFC 9651.
SPELLINGS = ("either", "bare", "quoted")
#: The shapes of an error's body: a problem document (RFC 9457), that of an API, or a page for people.
ERRORS = ("problem", "page", "adyen", "google", "iceberg", "odata", "paypal", "square", "stripe")
#: The headers that say whether a retry makes sense.
RETRY_HEADERS = ("Retry-After", "Stripe-Should-Retry", "X-Should-Retry", "Transient-Error")
#: The longest key that a record can hold.
LONGEST = 255

#: A function that makes the body of an error: `errors(problem, status)` → what JSON can hold.
ErrorBody = Callable[[Any, int], Mapping[str, Any]]

_TOKEN = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
#: Headers with another meaning: secrets, and those that WSGI does not pass on as HTTP_….
_TAKEN = frozenset(
    {
        *("accept", "authorization", "connection", "content-length", "content-type", "cookie", "host"),
        "proxy-authorization",
    }
)


def is_free(name: Any) -> bool:
    """Is it the name of a request header that may be ours?"""
    return isinstance(name, str) and _TOKEN.fullmatch(name) is not None and name.lower() not in _TAKEN


def _statuses(value: Any, least: int = 100) -> bool:
    return isinstance(value, Collection) and all(isinstance(each, int) and least <= each < 600 for each in value)


def _is_pattern(value: Any) -> bool:
    try:
        re.compile(value or "")
    except (TypeError, re.error):
        return False
    return True


_FREE = "the name of a header that HTTP itself does not use (letters, digits and hyphens)"
_ERROR = "a status from 400 to 599"


# A field is declared once: its default, what it accepts, and in words what to type.


def _field(default: Any, accepts: Callable[[Any], bool], expected: str) -> Any:
    return dataclasses.field(default=default, metadata={"accepts": accepts, "expected": expected})


def _some_of(*words: str) -> Any:
    expected = " or ".join(f'"{word}"' for word in words)
    return _field(words[0], lambda value: isinstance(value, str) and value in words, expected)


def _sent_header() -> Any:
    return _field(None, lambda value: value is None or is_free(value), f"{_FREE}, or None")


def _own_header(default: str | None) -> Any:
    return _field(
        default,
        lambda value: value is None or (isinstance(value, str) and _TOKEN.fullmatch(value) is not None),
        "the name of a header (letters, digits and hyphens), or None",
    )


def _error(default: int) -> Any:
    return _field(default, lambda value: _statuses([value], 400), _ERROR)


def _seconds() -> Any:
    return _field(
        0,
        lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 3650 * 86400,
        "a number of seconds, 0 or more",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """How an API speaks about idempotency. Change one with `dataclasses.replace()`.

    Raises `ValueError` for an invalid value, with a message that says what to type.
    """

    name: str = dataclasses.field(
        metadata={"accepts": lambda value: isinstance(value, str) and value != "", "expected": "a word"}
    )

    #: Where the key is: in a "header", in a member of the "body" (JSON or a form), or in the "query".
    carrier: str = _some_of(*CARRIERS)
    #: The name of that header, member or parameter.
    field: str = _field(
        "Idempotency-Key",
        lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]+", value) is not None,
        "the name of a header, of a member of the body or of a parameter",
    )
    #: How a header may spell the key: "bare", "quoted" as a string of RFC 9651, or "either".
    spelling: str = _some_of(*SPELLINGS)
    #: The most characters of a key.
    max_length: int = _field(
        LONGEST,
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LONGEST,
        f"a number from 1 to {LONGEST}",
    )
    #: A regular expression that the whole key must match; `None`: any printable ASCII.
    pattern: str | None = _field(None, _is_pattern, "a regular expression, or None")
    #: A header that names the client, whose keys are its own; `None`: there is none.
    client_field: str | None = _sent_header()
    #: A header that must come with the key and say when the client first sent the request; `None`: there is none.
    first_sent_field: str | None = _sent_header()
    #: For how long after that a request is accepted, and how far ahead a client's clock may be (seconds).
    window: float = _seconds()
    ahead: float = _seconds()

    #: The status for a missing key, a malformed one, one of another request, one whose first request runs, and one that
    #: comes outside `window`.
    missing_status: int = _error(400)
    invalid_status: int = _error(400)
    mismatch_status: int = _error(422)
    running_status: int = _error(409)
    late_status: int = _error(412)
    #: The status for a key on a method that the policy does not guard; `None`: the request runs, and is reported.
    unsupported_status: int | None = _field(
        None, lambda value: value is None or _statuses([value], 400), f"{_ERROR}, or None"
    )

    #: The statuses of the responses that are stored; `None`: by the table in `core.conclusions`.
    remembers: Collection[int] | None = _field(
        None, lambda value: value is None or _statuses(value), "a set of statuses, or None"
    )
    #: The status of a replay, where it differs from the first response's: pairs of both.
    replays_as: tuple[tuple[int, int], ...] = _field(
        (),
        lambda value: isinstance(value, tuple) and all(isinstance(pair, tuple) and _statuses(pair) for pair in value),
        "a tuple of pairs of statuses, such as ((201, 200),)",
    )

    #: The header that marks a replay, as "true", and the one with the id of the request that did the work.
    marker: str | None = _own_header("Idempotent-Replayed")
    original: str | None = _own_header("Original-Request")
    #: The statuses on which a response repeats the key in the header that carried it.
    echoes: Collection[int] = _field((), _statuses, "a set of statuses")
    #: A header that says "accepted" or "rejected".
    result: str | None = _own_header(None)
    #: The headers of our own errors that say whether to retry: some of `RETRY_HEADERS`.
    retry_headers: tuple[str, ...] = _field(
        ("Retry-After",),
        lambda value: isinstance(value, tuple) and set(value) <= set(RETRY_HEADERS),
        f"a tuple of {', '.join(RETRY_HEADERS)}",
    )
    #: The shape of their bodies, one of `ERRORS`; or a function of the problem and its status.
    errors: str | ErrorBody = _field(
        "problem",
        lambda value: callable(value) or (isinstance(value, str) and value in ERRORS),
        f"one of {', '.join(ERRORS)}, or a function of the problem and its status",
    )

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value, name = getattr(self, each.name), each.name
            if not each.metadata["accepts"](value):
                raise ValueError(f"Profile({name}={value!r}): {name} is {each.metadata['expected']}.")
        if self.carrier == "header" and not is_free(self.field):
            raise ValueError(f"Profile(field={self.field!r}): field is {_FREE}.")
        if self.first_sent_field is not None and (self.carrier != "header" or not self.window):
            raise ValueError(
                f"Profile(first_sent_field={self.first_sent_field!r}): it needs carrier='header', and a window above 0."
            )

    def __hash__(self) -> int:
        return hash((self.name, self.field))

    @cached_property
    def headers(self) -> frozenset[str]:
        """The lower-case names of the response headers that only this profile sets."""
        named = (
            self.marker,
            self.original,
            self.result,
            self.field if self.echoes and self.carrier == "header" else None,
        )
        return frozenset(name.lower() for name in named if name)


# ------------------------------------------------------------------------------------------------------- shipped

_SUCCESS = frozenset(range(200, 400))
_CLIENT_ERRORS = frozenset(range(400, 500))
_SERVER_ERRORS = frozenset(range(500, 600))
#: A refusal that the same request may not meet again.
_TRANSIENT = frozenset({401, 403, 408, 409, 425, 429})
_UUID = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_UUID4 = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-4[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"
_UUID7 = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-7[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"

#: What we do where nothing else is asked for. Its header is the setting HEADER.
DEFAULT = Profile(name="default")

#: The draft "The Idempotency-Key HTTP Header Field", -07: the value is a string of RFC 9651, and nothing else.
IETF = Profile(name="ietf", spelling="quoted")

#: Stripe, v1. Everything is kept once the endpoint has begun, 500 included; refusals before that are not.
STRIPE = Profile(
    name="stripe",
    spelling="bare",
    mismatch_status=400,
    remembers=_SUCCESS | (_CLIENT_ERRORS - _TRANSIENT - {400, 415}) | _SERVER_ERRORS,
    echoes=frozenset(range(100, 600)),
    retry_headers=("Retry-After", "Stripe-Should-Retry"),
    errors="stripe",
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
    errors="adyen",
)

#: PayPal, Orders v2. A repeat of what was created answers 200.
PAYPAL = Profile(
    name="paypal",
    field="PayPal-Request-Id",
    spelling="bare",
    max_length=108,
    replays_as=((201, 200),),
    errors="paypal",
)

#: Square, Payments.
SQUARE = Profile(
    name="square",
    carrier="body",
    field="idempotency_key",
    max_length=45,
    mismatch_status=400,
    errors="square",
)

#: Repeatable Requests 1.0 (OASIS), as in Azure's guidelines. The window leaves room within a `ttl` of a day.
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
    errors="odata",
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
    errors="google",
)

#: Zalando's guidelines, rule 230.
ZALANDO = Profile(name="zalando", spelling="bare", max_length=36, pattern=_UUID, mismatch_status=400)

#: Apache Iceberg's REST catalog: a conflict is final there, and a server error never is.
ICEBERG = Profile(
    name="iceberg",
    spelling="bare",
    max_length=36,
    pattern=_UUID7,
    remembers=_SUCCESS | (_CLIENT_ERRORS - {401, 403, 408, 425, 429}),
    errors="iceberg",
)

#: HTML forms. A form that is refused is corrected and sent again, under the key that it has.
FORM = Profile(name="form", carrier="body", field="idempotency_key", remembers=_SUCCESS, errors="page")

#: By name.
PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (DEFAULT, IETF, STRIPE, ADYEN, PAYPAL, SQUARE, REPEATABILITY, AIP155, ZALANDO, ICEBERG, FORM)
}
