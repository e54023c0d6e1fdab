"""The policy of one route. A `Policy` holds callables and never calls them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .field_values import are_exceptions, are_names, are_statuses, is_duration, is_flag, is_rate, is_size, one_of
from .key_formats import is_format
from .profiles import PROFILES, Profile
from .records import MISSING, Guarantee

#: A duration: seconds, or a `timedelta`.
Duration = float | timedelta

#: The default of every field below: "as the project's settings say".
FROM_SETTINGS: Any = MISSING

#: The top-level names of a request's document, which expressions select from.
DOCUMENT = ("body", "headers", "method", "path", "query", "user")
#: The fields that may be expressions.
SELECTING = ("key", "fingerprint", "fresh_keys_by", "suspect")
#: The named fingerprints.
FINGERPRINTS = ("request", "raw", "headers")

#: The modes of a policy: it guards, or it only reports what a guard would have done.
ENFORCE, OBSERVE = "enforce", "observe"
#: The value of `required` between `True` and `False`: a request without a key runs unguarded, and is reported.
WARN = "warn"
#: Without a principal a key is the only secret there is: the fewest characters of a key that all clients share.
MIN_SHARED_KEY = 20

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110 section 9.2.1


def seconds(value: Duration) -> float:
    """Return a duration in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The policy of one route. A field that is left out follows the settings, read live.

    Raises `ValueError` for an invalid value, with a message that says what to type.
    """

    #: Does it guard ("enforce"), or only report what a guard would have done ("observe")?
    mode: str = FROM_SETTINGS
    #: Is a request without a key refused (400), or does it run unguarded? "warn": it runs, and is reported.
    required: bool | str = FROM_SETTINGS
    #: How long a stored response is replayed, counted from the claim.
    ttl: Duration = FROM_SETTINGS
    #: `lease` only: how long an owner may be silent before another may take over.
    lease: Duration = FROM_SETTINGS
    #: "atomic" or "lease".
    guarantee: Guarantee | str = FROM_SETTINGS
    #: An alias of `IDEMPOTENCY["STORES"]`.
    store: str = FROM_SETTINGS
    #: `scope(request)` names the principal of a request without an authenticated user; `None`: none. The name is
    #: stored as its hash, unless `scopes.public` declares that it is not a secret.
    scope: Callable[[Any], str | None] | None = FROM_SETTINGS
    #: `realm(request)` names the tenant that qualifies every scope; `None`: none. For a function's call it gets `None`.
    realm: Callable[[Any], str | None] | None = FROM_SETTINGS
    #: What happens to a key without a principal: "refuse", or "shared" by all clients (long keys only).
    anonymous: str = FROM_SETTINGS
    #: The key of a request without the header: a JMESPath expression over the request, or `key(request)` → any value.
    key: str | Callable[[Any], Any] | None = FROM_SETTINGS
    #: What a key looks like: "any", "uuid", "uuid4", "uuid7" (refused when it is older than `ttl`), "issued" (made and
    #: signed by the server, refused in the same way), or a regular expression that matches all of it. A selected key must be
    #: one text of this format.
    key_format: str | re.Pattern[str] = FROM_SETTINGS
    #: What makes a request the same: "request", "raw" (bytes), "headers" (no body), a JMESPath expression, or
    #: `fingerprint(request)` → bytes.
    fingerprint: str | Callable[[Any], bytes | str] = FROM_SETTINGS
    #: Refusals to store after all (a set of statuses), or `keep(response)` → True, False or None (by the table).
    keep: Collection[int] | Callable[[Any], bool | None] | None = FROM_SETTINGS
    #: The response headers to store: all safe ones (`None`), only these, or those for which `headers(name)` is true.
    headers: Collection[str] | Callable[[str], bool] | None = FROM_SETTINGS
    #: The longest response body that is stored (bytes); `None`: as long as the store can hold. A longer response is
    #: completed without its body.
    max_body: int | None = FROM_SETTINGS
    #: Is the response stored? If not, only its status is, and the headers that `headers` names: for what mints secrets.
    store_body: bool = FROM_SETTINGS
    #: The longest request body that the guard reads to compare it (bytes); `None`: no bound. A longer one is refused
    #: (413).
    max_request_body: int | None = FROM_SETTINGS
    #: Is a StreamingHttpResponse read into memory and stored?
    buffer_stream: bool = FROM_SETTINGS
    #: What a duplicate of a running request does: "reject" (409), or "wait" up to `wait` seconds for the replay.
    on_busy: str = FROM_SETTINGS
    wait: Duration = FROM_SETTINGS
    #: After a failure the key is "free" again, or stays held until the lease ends ("hold", `lease` only).
    on_failure: str = FROM_SETTINGS
    #: When the store cannot be reached before the work: "closed" (503), or "open" (run it, unguarded and marked).
    on_store_failure: str = FROM_SETTINGS
    #: `authorize_replay(request, outcome)` → False, or an exception, refuses a replay (403).
    authorize_replay: Callable[[Any, Any], bool] | None = FROM_SETTINGS
    #: `on_replay(request, response)` returns what a replay sends: the stored response, or one with the current state.
    on_replay: Callable[[Any, Any], Any] | None = FROM_SETTINGS
    #: `lease` only: `on_takeover(takeover)` is asked before the request of a crashed owner is run again: it returns
    #: `takeover.run()`, `.found(response)` or `.hold()`. It may be a coroutine function. `None`: it is run.
    on_takeover: Callable[[Any], Any] | None = FROM_SETTINGS
    #: `lease` only: exceptions on which the work gives up: the steps that have an undo are undone, and the response is
    #: stored, whatever its status is.
    undo_on: Collection[type[Exception]] = FROM_SETTINGS
    #: How many new keys a client may make: "60/m", "1000/h", "5/10s". More are refused (429). `None`: any number.
    fresh_keys: str | None = FROM_SETTINGS
    #: What `fresh_keys` counts by: a JMESPath expression over the request, or a function of the request. `None`: the scope.
    fresh_keys_by: str | Callable[[Any], Any] | None = FROM_SETTINGS
    #: The facts that make two requests with different keys the same: an expression, or a function of the request; `None`:
    #: none are compared.
    suspect: str | Callable[[Any], Any] | None = FROM_SETTINGS
    #: How long a request's facts are remembered.
    within: Duration = FROM_SETTINGS
    #: What happens to a request whose facts are those of another key: "report" it, or "refuse" it (409).
    suspect_action: str = FROM_SETTINGS
    #: The methods that a key guards.
    methods: Collection[str] = FROM_SETTINGS
    #: What the clients of the API expect on the wire: the name of a shipped profile, or a `Profile`.
    profile: str | Profile = FROM_SETTINGS

    if not TYPE_CHECKING:

        def __new__(cls, **given: Any) -> Any:
            for name in given.keys() - cls.__dataclass_fields__.keys():
                (close,) = get_close_matches(name, FIELD_NAMES, n=1, cutoff=0)
                raise TypeError(f"Policy has no field {name}. Did you mean {close}?")
            return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, value in self.given().items():
            if inspect.iscoroutinefunction(value) and name != "on_takeover":
                raise ValueError(
                    f"Policy({name}={value!r}): {name} is a sync function; its coroutine would count as true."
                )
        for name, (accepts, expected) in _FIELDS.items():
            value = getattr(self, name)
            if value is not MISSING and not accepts(value):
                raise ValueError(f"Policy({name}={value!r}): {name} is {expected}.")
        bounded = self.guarantee != Guarantee.ATOMIC and MISSING not in (self.lease, self.ttl)
        if bounded and seconds(self.lease) >= seconds(self.ttl):
            raise ValueError(f"Policy(lease={self.lease!r}, ttl={self.ttl!r}): make lease shorter than ttl.")
        if self.anonymous == "shared" and self.given().get("key") is not None:
            raise ValueError(
                f'Policy(key={self.key!r}, anonymous="shared"): equal payloads of two clients would get one response. '
                "Identify the client: scope=…"
            )
        if self.given().get("suspect") is not None and shows_strangers(self):
            raise ValueError(f'Policy(suspect=…, suspect_action="refuse", anonymous="shared"): {STRANGERS}')

    def given(self) -> Mapping[str, Any]:
        """Return the fields that were not left out."""
        return {name: value for name in FIELD_NAMES if (value := getattr(self, name)) is not MISSING}


FIELD_NAMES = tuple(field.name for field in fields(Policy))


@dataclass(frozen=True, kw_only=True)
class Resolved(Policy):
    """A policy with every field set, durations in seconds."""

    ttl: float
    lease: float
    wait: float
    within: float
    guarantee: Guarantee
    profile: Profile
    #: How long a claim alone protects its owner (seconds): in `atomic` it only covers the time from claim to lock.
    claim_lease: float
    #: The name in `request.META` of the header with a request's own id; "": it is not read.
    request_id_header: str = ""
    #: The setting of that name, for `derive()`; `None`: SECRET_KEY.
    derive_secret: str | bytes | None = field(repr=False)  # kept out of tracebacks that print local variables


#: Why a refusal may not show them, and what to type.
STRANGERS = (
    "clients without a login would learn of each other's requests. Identify the client: scope=…, or type "
    'suspect_action="report".'
)


def shows_strangers(terms: Policy) -> bool:
    """Would a refusal name, to one of the clients that share a scope, the request of another?"""
    return terms.anonymous == "shared" and terms.suspect_action == "refuse"


def _expression(value: Any) -> bool:
    """Can this be an expression? A single name must be one of the document's; JMESPath judges the rest."""
    return isinstance(value, str) and value != "" and (re.fullmatch(r"\w+", value) is None or value in DOCUMENT)


def _selects(value: Any) -> bool:
    return value is None or callable(value) or _expression(value)


_OVER = f"a JMESPath expression over {', '.join(DOCUMENT[:-1])} and {DOCUMENT[-1]}"
_POSITIVE = "a positive number of seconds (or a timedelta), at most ten years"


#: Field → (what it accepts, in words what to type).
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "mode": (one_of(ENFORCE, OBSERVE), '"enforce" or "observe"'),
    "required": (lambda value: is_flag(value) or value == WARN, 'True, False or "warn"'),
    "ttl": (is_duration, _POSITIVE),
    "lease": (is_duration, _POSITIVE),
    "guarantee": (one_of("atomic", "lease"), '"atomic" or "lease"'),
    "store": (lambda value: isinstance(value, str) and value != "", "an alias of STORES"),
    "scope": (lambda value: value is None or callable(value), "a function of the request, or None"),
    "realm": (lambda value: value is None or callable(value), "a function of the request, or None"),
    "anonymous": (one_of("refuse", "shared"), '"refuse" or "shared"'),
    "key": (_selects, f"{_OVER}, a function of the request, or None"),
    "key_format": (is_format, '"any", "uuid", "uuid4", "uuid7", "issued", or a regular expression'),
    "fingerprint": (
        lambda value: callable(value) or value in FINGERPRINTS or _expression(value),
        f'"request", "raw", "headers", {_OVER}, or a function of the request that returns bytes',
    ),
    "keep": (
        lambda value: value is None or callable(value) or are_statuses(value),
        "a set of statuses below 500, a function of the response, or None",
    ),
    "headers": (
        lambda value: value is None or callable(value) or are_names(value),
        "a list of header names, a function of a name, or None",
    ),
    "max_body": (lambda value: value is None or is_size(value), "a number of bytes, 0 or more, or None"),
    "store_body": (is_flag, "True or False"),
    "max_request_body": (lambda value: value is None or is_size(value), "a number of bytes, 0 or more, or None"),
    "buffer_stream": (is_flag, "True or False"),
    "on_busy": (one_of("reject", "wait"), '"reject" or "wait"'),
    "wait": (is_duration, _POSITIVE),
    "on_failure": (one_of("free", "hold"), '"free" or "hold"'),
    "on_store_failure": (one_of("closed", "open"), '"closed" or "open"'),
    "authorize_replay": (lambda value: value is None or callable(value), "a function of request and outcome, or None"),
    "on_replay": (lambda value: value is None or callable(value), "a function of request and response, or None"),
    "on_takeover": (lambda value: value is None or callable(value), "a function of a takeover, or None"),
    "undo_on": (are_exceptions, "classes of exceptions, such as (SoldOut, CardDeclined)"),
    "fresh_keys": (
        lambda value: value is None or is_rate(value),
        '"60/m", another number per second, minute, hour or day ("5/10s", "1000/h", "1/d"), or None',
    ),
    "fresh_keys_by": (_selects, f"{_OVER}, a function of the request, or None"),
    "suspect": (_selects, f"{_OVER}, a function of the request, or None"),
    "within": (is_duration, _POSITIVE),
    "suspect_action": (one_of("report", "refuse"), '"report" or "refuse"'),
    "methods": (
        lambda value: are_names(value) and not SAFE_METHODS & {name.upper() for name in value},
        'a list of unsafe methods, such as ("POST", "PATCH")',
    ),
    "profile": (
        lambda value: isinstance(value, Profile) or (isinstance(value, str) and value in PROFILES),
        f"{', '.join(f'{chr(34)}{name}{chr(34)}' for name in PROFILES)}, or a Profile",
    ),
}
