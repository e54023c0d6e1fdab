"""What the clients of an API expect on the wire: `Policy(profile="stripe")`, or a profile of your
own by `replace()`.

A profile is data only; `http` acts on it. Each of those shipped says what its API has published;
where that is silent, our default holds.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any

#: Where a request carries its key.
CARRIERS = ("header", "body", "query")
#: How a header spells it: bare or quoted; as it is; only as a string of RFC 9651; or as it is,
#: commas included.
SPELLINGS = ("either", "bare", "quoted", "opaque")
#: The shapes of an error's body: a problem document (RFC 9457), or a page for people.
ERRORS = ("problem", "page")
#: The headers that say whether a retry makes sense.
RETRY_HEADERS = ("Retry-After", "Stripe-Should-Retry", "X-Should-Retry", "Transient-Error")
#: The longest key that a record can hold.
LONGEST = 255

#: A function that makes the body of an error: `errors(problem, status, request)` → what JSON can
#: hold. For an example in a schema the request is `None`.
ErrorBody = Callable[[Any, int, Any], Mapping[str, Any]]

_TOKEN = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
#: Headers with another meaning: secrets, and those that WSGI does not pass on as HTTP_….
_TAKEN = frozenset(
    {
        *(
            "accept",
            "authorization",
            "connection",
            "content-length",
            "content-type",
            "cookie",
            "host",
        ),
        "proxy-authorization",
    }
)


def is_free(name: Any) -> bool:
    """Is it the name of a request header that may be ours?"""
    return (
        isinstance(name, str) and _TOKEN.fullmatch(name) is not None and name.lower() not in _TAKEN
    )


def takes(function: Any, count: int) -> bool:
    """Is it a function that can be called with so many arguments?

    One that does not say, such as a built-in, can.
    """
    if not callable(function):
        return False
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _statuses(value: Any, least: int = 100) -> bool:
    return isinstance(value, Collection) and all(
        isinstance(each, int) and least <= each < 600 for each in value
    )


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


def _makes_bodies(value: Any) -> bool:
    return takes(value, 3) and not inspect.iscoroutinefunction(value)


def _own_header(default: str | None) -> Any:
    return _field(
        default,
        lambda value: (
            value is None or (isinstance(value, str) and _TOKEN.fullmatch(value) is not None)
        ),
        "the name of a header (letters, digits and hyphens), or None",
    )


def _error(default: int) -> Any:
    return _field(default, lambda value: _statuses([value], 400), _ERROR)


def _seconds() -> Any:
    return _field(
        0,
        lambda value: (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and 0 <= value < 3650 * 86400
        ),
        "a number of seconds, 0 or more",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """How an API speaks about idempotency. Change one with `dataclasses.replace()`.

    Raises `ValueError` for an invalid value, with a message that says what to type.
    """

    name: str = dataclasses.field(
        metadata={
            "accepts": lambda value: isinstance(value, str) and value != "",
            "expected": "a word",
        }
    )

    #: Where the key is: in a "header", in a member of the "body" (JSON or a form), or in the
    #: "query".
    carrier: str = _some_of(*CARRIERS)
    #: The name of that header, member or parameter.
    field: str = _field(
        "Idempotency-Key",
        lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]+", value) is not None,
        "the name of a header, of a member of the body or of a parameter",
    )
    #: How a header may spell the key: "bare", "quoted" as a string of RFC 9651, or "either"; or
    #: "opaque": bare, and a comma is one of its characters. Then two headers, which servers join
    #: with a comma, are one key.
    spelling: str = _some_of(*SPELLINGS)
    #: The most characters of a key.
    max_length: int = _field(
        LONGEST,
        lambda value: (
            isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LONGEST
        ),
        f"a number from 1 to {LONGEST}",
    )
    #: A regular expression that the whole key must match; `None`: any printable ASCII.
    pattern: str | None = _field(None, _is_pattern, "a regular expression, or None")
    #: What of a request a retry must repeat, besides method and path: query, content type and body
    #: ("request"), or its "body" alone, which is JSON whatever its content type says.
    compares: str = _some_of("request", "body")
    #: For how long after its `ttl` a response is still replayed, for clients whose clocks differ
    #: (seconds).
    grace: float = _seconds()
    #: Is a key one key of its "client", or of each "endpoint" (path) that the client sends it to?
    keys_per: str = _some_of("client", "endpoint")
    #: A header that names the client, whose keys are its own; `None`: there is none.
    client_field: str | None = _sent_header()
    #: A header that must come with the key and say when the client first sent the request; `None`:
    #: there is none.
    first_sent_field: str | None = _sent_header()
    #: For how long after that a request is accepted, and how far ahead a client's clock may be
    #: (seconds).
    window: float = _seconds()
    ahead: float = _seconds()

    #: The status for a missing key, a malformed one, one of another request, one whose first
    #: request runs, and one that comes outside `window`.
    missing_status: int = _error(400)
    invalid_status: int = _error(400)
    mismatch_status: int = _error(422)
    running_status: int = _error(409)
    late_status: int = _error(412)
    #: The status for a key on a method that the policy does not guard; `None`: the request runs,
    #: and is reported.
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
        lambda value: (
            isinstance(value, tuple)
            and all(isinstance(pair, tuple) and _statuses(pair) for pair in value)
        ),
        "a tuple of pairs of statuses, such as ((201, 200),)",
    )

    #: The header that marks a replay, as "true", and the member of a JSON object that does; and the
    #: header with the id of the request that did the work.
    marker: str | None = _own_header("Idempotent-Replayed")
    marker_member: str | None = _field(
        None,
        lambda value: value is None or (isinstance(value, str) and value != ""),
        "the name of a member, or None",
    )
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
    #: The shape of their bodies, one of `ERRORS`; or a function of the problem, its status and the
    #: request.
    errors: str | ErrorBody = _field(
        "problem",
        lambda value: value in ERRORS if isinstance(value, str) else _makes_bodies(value),
        f"one of {', '.join(ERRORS)}, or a sync function of the problem, its status and "
        "the request: "
        "def errors(problem, status, request)",
    )

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            name = each.name
            if not each.metadata["accepts"](value):
                raise ValueError(
                    f"Profile({name}={value!r}): {name} is {each.metadata['expected']}."
                )
        if self.carrier == "header" and not is_free(self.field):
            raise ValueError(f"Profile(field={self.field!r}): field is {_FREE}.")
        if self.first_sent_field is not None and (self.carrier != "header" or not self.window):
            raise ValueError(
                f"Profile(first_sent_field={self.first_sent_field!r}): it needs "
                "carrier='header', and a window above 0."
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


# ------------------------------------------------------------------------------------------ shipped

#: What we do where nothing else is asked for. Its header is the setting HEADER.
DEFAULT = Profile(name="default")

#: The draft "The Idempotency-Key HTTP Header Field", -07: the value is a string of RFC 9651, and
#: nothing else.
IETF = Profile(name="ietf", spelling="quoted")

#: HTML forms. A form that is refused is corrected and sent again, under the key that it has.
FORM = Profile(
    name="form",
    carrier="body",
    field="idempotency_key",
    remembers=frozenset(range(200, 400)),
    errors="page",
)

_DIALECTS = ("stripe", "adyen", "paypal", "square", "repeatability", "aip155", "zalando", "iceberg")
_COMMERCE = ("acp", "ucp", "adcp", "mastodon", "gocardless", "mollie")
#: The names of those whose APIs refuse a request without a key: a policy says required=True beside
#: them.
COMPULSORY = frozenset({"acp", "ucp", "adcp"})
#: By name: a profile, or the dotted path of one.
SHIPPED: Mapping[str, Profile | str] = {
    "default": DEFAULT,
    "ietf": IETF,
    **{name: f"django_idempotency.contrib.dialects.{name.upper()}" for name in _DIALECTS},
    **{name: f"django_idempotency.contrib.dialects.commerce.{name.upper()}" for name in _COMMERCE},
    "form": FORM,
}
