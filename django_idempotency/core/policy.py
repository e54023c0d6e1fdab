"""The policy of one route. A `Policy` holds callables and never calls them.

A field is declared once, here: its type, its default (that of the setting of its name in capitals),
what it accepts, and what else is known of it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .conclusions import WRITTEN
from .dialects import EXPECTED, Dialect, is_dialect, takes
from .key_formats import described, is_format, is_possible
from .records import MISSING, Guarantee

#: A duration: seconds, or a `timedelta`.
Duration = float | timedelta

#: The top-level names of a request's document, which expressions select from.
DOCUMENT = ("body", "headers", "method", "path", "query", "user")
#: The named fingerprints.
FINGERPRINTS = ("request", "raw", "headers")

#: The mode of a policy that guards. Any other is an object that only observes: see `Observing`.
ENFORCE = "enforce"
#: The value of `required` between `True` and `False`: a request without a key runs unguarded, and
#: is reported.
WARN = "warn"
#: Without a principal a key is the only secret there is: the fewest characters of a key that all
#: clients share.
MIN_SHARED_KEY = 20

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110 section 9.2.1
#: The usual methods that are not safe. What is nearly one of them is a typo, and would guard
#: nothing; but for that of WebDAV.
UNSAFE_METHODS = ("POST", "PUT", "PATCH", "DELETE")
_LIKE_ONE = frozenset({"PROPPATCH"})


def seconds(value: Duration) -> float:
    """Return a duration in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


# --------------------------------------------------------------------------- how to declare a field


#: Fields, and settings, that have become something else, and what to type.
RENAMED = {
    **dict.fromkeys(
        ("fresh_keys", "fresh_keys_by"),
        'extensions=[FreshKeys("60/m", by=…)], of django_idempotency.contrib.limits; in the '
        'settings "EXTENSIONS": ["shop.options.FRESH_KEYS"], its dotted path',
    ),
    **dict.fromkeys(
        ("suspect", "within", "suspect_action"),
        "extensions=[Suspect(…, within=300, refuse=True)], of django_idempotency.contrib.limits; "
        'in the settings "EXTENSIONS": ["shop.options.SUSPECT"], its dotted path',
    ),
    "replay_through": "@idempotent() below the decorator, or authorize_replay=…; in the settings "
    '"AUTHORIZE_REPLAY": "shop.idempotency.authorize_replay"',
    "seen_for": "extensions=[Tombstones(7 * 86400)], of django_idempotency; in the settings "
    '"EXTENSIONS": ["shop.options.SEEN_FOR"], its dotted path',
    "longest_run": "extensions=[LongestRun(600)], of django_idempotency; in the settings "
    '"EXTENSIONS": ["shop.options.LONGEST_RUN"], its dotted path',
    "on_takeover": "extensions=[OnTakeover(…)], of django_idempotency; in the settings "
    '"EXTENSIONS": ["shop.options.ON_TAKEOVER"], its dotted path',
    "on_replay": "extensions=[OnReplay(…)], of django_idempotency; in the settings "
    '"EXTENSIONS": ["shop.options.ON_REPLAY"], its dotted path',
    "on_busy": 'wait=5, so many seconds, or leave it out; in the settings "WAIT": 5',
    "store_body": "extensions=[StatusOnly()], of django_idempotency, for False; in the settings "
    '"EXTENSIONS": ["django_idempotency.StatusOnly"]',
    "buffer_stream": "extensions=[BufferedStreams()], of django_idempotency, for True; in the "
    'settings "EXTENSIONS": ["django_idempotency.BufferedStreams"]',
    "undo_on": "extensions=[UndoOn(SoldOut, …)], of django_idempotency.contrib.steps; in the "
    'settings "EXTENSIONS": ["shop.options.UNDO_ON"], its dotted path',
}


def refuse_unknown(names: Iterable[str], known: Iterable[str], says: str) -> None:
    """Raise `TypeError` for a field that is not among those that are known, with what to type.

    `says`: the beginning of its message, such as "Policy has no field".
    """
    for name in names:
        if name in RENAMED:
            raise TypeError(f"{says} {name} any more. Type {RENAMED[name]}.")
        (close,) = get_close_matches(name.lower(), [*known], n=1, cutoff=0)
        raise TypeError(f"{says} {name}. Did you mean {close}?")


class PolicyField(NamedTuple):
    """What is known of a field."""

    #: The default of the setting. Every field of a `Policy` that is left out is `MISSING`: "as the
    #: settings say".
    default: Any
    accepts: Callable[[Any], bool]
    #: In words what to type.
    expected: str
    #: With how many arguments is a function called that it may be?
    takes: int = 0
    #: May the setting be the dotted path of a function, or of a profile?
    by_path: bool = False
    #: May it be an expression over the request's document?
    selects: bool = False

    def asks_for(self, value: Any) -> str | None:
        """Return in words what to type instead of a value; `None`: it is accepted.

        A function that cannot be called as it will be would fail at each request.
        """
        if inspect.iscoroutinefunction(value):
            return "a sync function; its coroutine would count as true"
        fails = callable(value) and self.takes > 0 and not takes(value, self.takes)
        return self.expected if fails or not self.accepts(value) else None


def _field(default: Any, accepts: Callable[[Any], bool], expected: str, **more: Any) -> Any:
    return field(default=MISSING, metadata={"of": PolicyField(default, accepts, expected, **more)})


def is_flag(value: Any) -> bool:
    """Is it `True` or `False`?"""
    return isinstance(value, bool)


def is_duration(value: Any) -> bool:
    """Is it a duration of at most ten years: seconds, or a `timedelta`?"""
    if isinstance(value, timedelta):
        return timedelta(0) < value <= timedelta(days=3650)
    return isinstance(value, (int, float)) and not is_flag(value) and 0 < value <= 3650 * 86400


#: What `is_duration()` accepts, in words.
DURATION = "a positive number of seconds (or a timedelta), at most ten years"


def _each(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return what accepts a collection of such values."""
    return lambda value: (
        isinstance(value, Collection)
        and not isinstance(value, (str, bytes))
        and all(map(is_one, value))
    )


def _is_unsafe_method(name: Any) -> bool:
    """Is it the name of a method that a key may guard?"""
    if not isinstance(name, str) or re.fullmatch(r"[A-Za-z][A-Za-z-]*", name) is None:
        return False
    upper = name.upper()
    if upper in UNSAFE_METHODS or upper in _LIKE_ONE:
        return True
    return upper not in SAFE_METHODS and not get_close_matches(
        upper, UNSAFE_METHODS, n=1, cutoff=0.7
    )


_are_methods = _each(_is_unsafe_method)
_are_names = _each(lambda name: isinstance(name, str))
_are_statuses = _each(lambda status: isinstance(status, int) and 100 <= status < 500)


def _expression(value: Any) -> bool:
    """Can this be an expression?

    A single name must be one of the document's; JMESPath judges the rest.
    """
    return (
        isinstance(value, str)
        and value != ""
        and (re.fullmatch(r"\w+", value) is None or value in DOCUMENT)
    )


_OVER = f"a JMESPath expression over {', '.join(DOCUMENT[:-1])} and {DOCUMENT[-1]}"


def _one_of(*words: str) -> Any:
    expected = ", ".join(f'"{word}"' for word in words[:-1])
    return _field(
        words[0],
        lambda value: isinstance(value, str) and value in words,
        f'{expected} or "{words[-1]}"',
    )


def _size(default: int | None) -> Any:
    return _field(
        default,
        lambda value: (
            value is None or (isinstance(value, int) and not is_flag(value) and value >= 0)
        ),
        "a number of bytes, 0 or more, or None",
    )


def _function(*of: str) -> Any:
    return _field(
        None,
        lambda value: value is None or callable(value),
        f"a function of {' and '.join(of)}, or None",
        by_path=True,
        takes=len(of),
    )


# --------------------------------------------------------------------------------------- the policy


class Observing(Protocol):
    """Looks at requests of a policy that guards nothing."""

    def watch(
        self, request: Any, plan: Any, *, refusal: Exception | None = None, **known: Any
    ) -> None:
        """Look at a request whose view runs next. Raises nothing.

        `refusal`: what a guard would raise; then there may be no plan.
        """


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The policy of one route. A field that is left out follows the settings, read live.

    Raises `ValueError` for an invalid value, with a message that says what to type.
    """

    #: Does it guard ("enforce"), or only report what a guard would have done? Then it is an object
    #: such as `contrib.observe.OBSERVE`.
    mode: str | Observing = _field(
        ENFORCE,
        lambda value: value == ENFORCE or hasattr(value, "watch"),
        '"enforce", or an object that observes: OBSERVE of django_idempotency.contrib.observe, in '
        "the settings its dotted path",
        by_path=True,
    )
    #: Is a request without a key refused (400), or does it run unguarded? "warn": it runs, and is
    #: reported.
    required: bool | str = _field(
        False, lambda value: is_flag(value) or value == WARN, 'True, False or "warn"'
    )
    #: How long a stored response is replayed, counted from the claim.
    ttl: Duration = _field(86400, is_duration, DURATION)
    #: `lease` only: how long an owner may be silent before another may take over.
    lease: Duration = _field(30, is_duration, DURATION)
    #: "atomic" or "lease".
    guarantee: Guarantee | str = _one_of("atomic", "lease")
    #: An alias of `IDEMPOTENCY["STORES"]`.
    store: str = _field(
        "default", lambda value: isinstance(value, str) and value != "", "an alias of STORES"
    )
    #: `scope(request)` names the principal of a request without an authenticated user; `None`:
    #: none. The name is stored as its hash, unless `scopes.public` declares that it is not a
    #: secret.
    scope: Callable[[Any], str | None] | None = _function("the request")
    #: `realm(request)` names the tenant that qualifies every scope; `None`: none. For a function's
    #: call it gets `None`.
    realm: Callable[[Any], str | None] | None = _function("the request")
    #: What happens to a key without a principal: "refuse", or "shared" by all clients (long keys
    #: only).
    anonymous: str = _one_of("refuse", "shared")
    #: The key of a request without the header: a JMESPath expression over the request, or
    #: `key(request)` → any value.
    key: str | Callable[[Any], Any] | None = _field(
        None,
        lambda value: value is None or callable(value) or _expression(value),
        f"{_OVER}, a function of the request, or None",
        by_path=True,
        takes=1,
        selects=True,
    )
    #: What a key looks like: "any", "uuid", "uuid4", "uuid7" (refused when it is older than `ttl`),
    #: "issued" (made and signed by the server, refused in the same way), or a regular expression
    #: that matches all of it. A selected key must be one text of this format.
    key_format: str | re.Pattern[str] = _field(
        "any", is_format, '"any", "uuid", "uuid4", "uuid7", "issued", or a regular expression'
    )
    #: What makes a request the same: "request", "raw" (bytes), "headers" (no body), a JMESPath
    #: expression, or `fingerprint(request)` → bytes.
    fingerprint: str | Callable[[Any], bytes | str] = _field(
        "request",
        lambda value: callable(value) or value in FINGERPRINTS or _expression(value),
        f'"request", "raw", "headers", {_OVER}, or a function of the request that returns bytes',
        by_path=True,
        takes=1,
        selects=True,
    )
    #: Refusals to store after all (a set of statuses); "written" (`atomic` only): a refusal is
    #: stored exactly if the work wrote in the store's database; or `keep(response)` → True, False
    #: or None (by the table).
    keep: Collection[int] | str | Callable[[Any], bool | None] | None = _field(
        None,
        lambda value: value is None or value == WRITTEN or callable(value) or _are_statuses(value),
        'a set of statuses below 500, "written", a function of the response, or None',
        by_path=True,
        takes=1,
    )
    #: The response headers to store: all safe ones (`None`), only these, or those for which
    #: `headers(name)` is true.
    headers: Collection[str] | Callable[[str], bool] | None = _field(
        None,
        lambda value: value is None or callable(value) or _are_names(value),
        "a list of header names, a function of a name, or None",
        by_path=True,
        takes=1,
    )
    #: The longest response body that is stored (bytes); `None`: as long as the store can hold. A
    #: longer response is completed without its body.
    max_body: int | None = _size(None)
    #: The longest request body that the guard reads to compare it (bytes); `None`: no bound. A
    #: longer one is refused (413).
    max_request_body: int | None = _size(32 * 1024 * 1024)
    #: How long a duplicate of a running request waits for the replay; then it gets 409. 0: it gets
    #: that at once.
    wait: Duration = _field(
        0,
        lambda value: is_duration(value) or (value == 0 and not is_flag(value)),
        f"0, or {DURATION}",
    )
    #: After a failure the key is "free" again for the same request; or stays held until the lease
    #: ends ("hold", `lease` only); or is free for any request, since all was rolled back ("forget",
    #: `atomic` only).
    on_failure: str = _one_of("free", "hold", "forget")
    #: When the store cannot be reached before the work: "closed" (503), or "open" (run it,
    #: unguarded and marked).
    on_store_failure: str = _one_of("closed", "open")
    #: `authorize_replay(request, outcome)` → False, or an exception, refuses a replay (403).
    authorize_replay: Callable[[Any, Any], bool] | None = _function("request", "outcome")
    #: Objects that have a say in each call, beside those of the setting: see `engine.extensions`.
    extensions: Collection[Any] = _field(
        (),
        _each(lambda value: hasattr(value, "decides") and not isinstance(value, type)),
        'objects such as FreshKeys("60/m"), in a list',
    )
    #: The methods that a key guards.
    methods: Collection[str] = _field(
        UNSAFE_METHODS,
        lambda value: _are_methods(value) and len(value) > 0,
        'a list of unsafe methods, such as ("POST", "PATCH")',
    )
    #: What the clients of the API expect on the wire: the name of one of the core's dialects, or a
    #: `Dialect`.
    profile: str | Dialect | type[Dialect] = _field("default", is_dialect, EXPECTED, by_path=True)

    #: By identity: each policy has a plan of its own, and may hold a list, which has no hash.
    __hash__ = object.__hash__

    if not TYPE_CHECKING:

        def __new__(cls, *unnamed: Any, **given: Any) -> Any:
            if unnamed:
                raise TypeError(
                    f"Policy({unnamed[0]!r}) does not say which field that is. Type "
                    "Policy(required=True, …)."
                )
            refuse_unknown(
                given.keys() - cls.__dataclass_fields__.keys(), FIELDS, "Policy has no field"
            )
            return super().__new__(cls)

    def __post_init__(self) -> None:
        refuse_invalid(self.given())
        problem = self.contradiction()
        if problem is not None:
            raise ValueError(problem)

    def contradiction(
        self, left_out: Mapping[str, Any] = MappingProxyType({}), others: Iterable[Any] = ()
    ) -> str | None:
        """Return what its fields say against each other, and what to type; `None` if they agree.

        `left_out`: the fields of the settings, if they are known. `others`: their extensions that
        have a say in its calls.
        """
        own = self.given()
        known = {**dict.fromkeys(FIELDS, MISSING), **left_out, **own}
        for each in CONTRADICTIONS:
            if each.under_lease and known["guarantee"] == Guarantee.ATOMIC:
                continue
            value = (known if each.against else own).get(each.field, MISSING)
            other = known[each.other]
            if MISSING not in (value, other) and each.clash(value, other):
                given = f"{each.field}={_shown(value)}, {each.other}={_shown(other)}"
                return f"Policy({given}): {each.says}"
        return self._objection(known, [*own.get("extensions", ()), *others])

    def _objection(self, known: Mapping[str, Any], extensions: Iterable[Any]) -> str | None:
        """Return why one of its extensions cannot be in it, and what to type; `None`: all can."""
        said = set(self.given())
        for each in extensions:
            if each.needs_lease and known["guarantee"] == Guarantee.ATOMIC:
                return (
                    f'Policy(extensions=[{each!r}], guarantee="atomic"): {each!r} '
                    f'{_IDLE_IN_ATOMIC} Type guarantee="lease", or leave it out.'
                )
            problem: str | None = each.contradiction(known.__getitem__)
            if problem is not None:
                return problem
            for term in each.terms:
                if term not in TERMS:
                    return f"{each!r} sets {term}. What it may set is {', '.join(TERMS)}."
                if term in said:
                    return (
                        f"Policy(extensions=[{each!r}]) says {term} a second time. Leave one of "
                        "the two out."
                    )
                said.add(term)
        return None

    def set_by_extension(self, term: str) -> Any:
        """Return a term that one of its own extensions sets; `None`: none does."""
        for each in self.given().get("extensions", ()):
            if term in each.terms:
                return each.terms[term]
        return None

    def given(self) -> Mapping[str, Any]:
        """Return the fields that were not left out."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not MISSING}


def refuse_invalid(given: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a value that its field does not accept, and say what to type."""
    for name, value in given.items():
        expected = FIELDS[name].asks_for(value)
        if expected is not None:
            raise ValueError(f"Policy({name}={value!r}): {name} is {expected}.")


#: By name, in the order of their declaration.
FIELDS: Mapping[str, PolicyField] = {each.name: each.metadata["of"] for each in fields(Policy)}
#: The fields that are durations.
DURATIONS = tuple(name for name, of in FIELDS.items() if of.accepts(timedelta(days=1)))
#: The fields that may be expressions.
SELECTING = tuple(name for name, of in FIELDS.items() if of.selects)


@dataclass(frozen=True, kw_only=True, eq=False)
class Resolved(Policy):
    """A policy with every field set, durations in seconds. Its extensions are those that look at
    calls: what others say is in its TERMS.
    """

    ttl: float
    lease: float
    wait: float
    guarantee: Guarantee
    profile: Dialect
    #: How long a claim alone protects its owner (seconds): in `atomic` it only covers the time from
    #: claim to lock.
    claim_lease: float
    #: The name in `request.META` of the header with a request's own id; "": it is not read.
    request_id_header: str = ""
    #: The setting of that name, for `derive()`; `None`: SECRET_KEY.
    # Kept out of tracebacks that print local variables.
    derive_secret: str | bytes | None = field(repr=False)
    #: All of its extensions, those too that say something and look at no call.
    chosen: tuple[Any, ...] = ()
    #: These are TERMS.
    store_body: bool = True
    buffer_stream: bool = False
    seen_for: float = 0.0
    longest_run: float | None = None
    on_replay: Callable[[Any, Any], Any] | None = None
    on_takeover: Callable[[Any], Any] | None = None
    undo_on: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        """Nothing: its fields were judged before they were filled in."""


#: What an extension may set, as those of `engine.options` do, and `UndoOn` of `contrib.steps`.
TERMS = (
    "store_body",
    "buffer_stream",
    "max_body",
    "seen_for",
    "longest_run",
    "on_replay",
    "on_takeover",
    "undo_on",
)


# ----------------------------------------------------------------------------------- contradictions


class Contradiction(NamedTuple):
    """A pair of fields, of which `field` means nothing, or harm, with what `other` says."""

    field: str
    other: str
    #: Do these two values of them stand against each other?
    clash: Callable[[Any, Any], bool]
    #: Why, and what to type.
    says: str
    #: Do they say something that cannot be kept, even if one of them is a default? Otherwise the
    #: first has no effect, or lacks something: a default that was said elsewhere does no harm.
    against: bool = False
    #: Do they only where the guarantee is a lease?
    under_lease: bool = False


def _lasts(value: Any, other: Any) -> bool:
    """Is it as long as another duration, or longer?"""
    return seconds(value) >= seconds(other)


def _demands_key(profile: Any, required: Any) -> bool:
    return required is False and getattr(profile, "requires_key", False)


_IDLE_IN_ATOMIC = (
    'means nothing with guarantee="atomic", where all that a crash or a failure leaves is rolled '
    "back."
)

#: Each pair of fields that stand against each other. Every other pair may be said together:
#: `tests/core` has a decision for each. What a policy leaves out, or says neutrally (`None`,
#: nothing), asks for nothing.
CONTRADICTIONS: tuple[Contradiction, ...] = (
    Contradiction(
        "lease",
        "guarantee",
        lambda _, guarantee: guarantee == Guarantee.ATOMIC,
        f'lease {_IDLE_IN_ATOMIC} Type guarantee="lease", or leave lease out.',
    ),
    Contradiction(
        "on_failure",
        "guarantee",
        lambda value, guarantee: value == "hold" and guarantee == Guarantee.ATOMIC,
        'on_failure="hold" means nothing with guarantee="atomic": a failure is rolled '
        "back, and the same request runs again. "
        'Type guarantee="lease", or leave on_failure out.',
    ),
    Contradiction(
        "on_failure",
        "guarantee",
        lambda value, guarantee: value == "forget" and guarantee == Guarantee.LEASE,
        'on_failure="forget" means nothing with guarantee="lease", where the writes of '
        "failed work stay. Type "
        'guarantee="atomic", or leave on_failure out.',
    ),
    Contradiction(
        "keep",
        "guarantee",
        lambda value, guarantee: value == WRITTEN and guarantee == Guarantee.LEASE,
        'keep="written" means nothing with guarantee="lease", where nobody counts what the '
        "work wrote. Type "
        'guarantee="atomic", or a set of statuses.',
    ),
    Contradiction(
        "profile",
        "required",
        _demands_key,
        "the API of this profile refuses each request without a key. Type required=True, too.",
    ),
    # The settings bound a lease also for policies that have none.
    Contradiction(
        "lease",
        "ttl",
        _lasts,
        "make lease shorter than ttl.",
        against=True,
        under_lease=True,
    ),
    Contradiction(
        "key",
        "anonymous",
        lambda key, anonymous: key is not None and anonymous == "shared",
        "equal payloads of two clients would get one response. Identify the client: scope=…",
        against=True,
    ),
)


def _shown(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    return f'"{value}"' if isinstance(value, str) else repr(value)


def async_contradiction(name: str, *, fix: str = "") -> str:
    """Return why something async cannot be "atomic".

    `name`: what it is called; `fix`: the sentence that says what to type.
    """
    return (
        f'{name} is async, and no transaction can cover it: it cannot be "atomic". {fix}'.rstrip()
    )


def profile_contradiction(terms: Resolved) -> str | None:
    """Return why a policy cannot keep its profile, and what to type; `None` if it can."""
    profile = terms.profile
    if profile.carrier != "header" and terms.key is not None:
        return (
            f"profile {profile.name!r} takes the key from the {profile.carrier}, so leave key out."
        )
    if not is_possible(terms.key_format, profile.pattern, profile.max_length):
        return (
            f"profile {profile.name!r} refuses each key that is "
            f"{described(terms.key_format)}, so leave key_format out, "
            "or take a subclass with another pattern."
        )
    if profile.window and terms.ttl < (needed := profile.window + profile.ahead):
        return (
            f"profile {profile.name!r} accepts a retry for {needed:g} s, so make ttl "
            f"({terms.ttl:g}) at least that, or "
            "take a subclass with another window."
        )
    if terms.anonymous == "shared" and profile.client_field is not None:
        return (
            f"profile {profile.name!r} tells clients apart by {profile.client_field}, "
            "which anyone can send, so "
            'anonymous="shared" would give a short key to strangers: identify the client '
            "with scope=…"
        )
    if terms.anonymous == "shared" and profile.max_length < MIN_SHARED_KEY:
        return (
            f"profile {profile.name!r} has keys of at most {profile.max_length} "
            'characters, and anonymous="shared" needs '
            f"{MIN_SHARED_KEY}: identify the client with scope=…"
        )
    return None
