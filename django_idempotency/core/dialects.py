"""What the clients of an API expect on the wire: `Policy(profile="stripe")`, or a `Dialect` of your
own.

A dialect is a class. Its attributes are plain facts, such as the name of the key's header, and four
methods say the rest: how a key is read, which status a problem has, which headers a response has,
and what an error's body is. A subclass changes what differs. Each dialect that is shipped says what
its API has published; where that is silent, our default holds.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from ..errors import KeyMalformed, Problem, RequestMismatch

#: The longest key that a record can hold.
LONGEST = 255
#: The content type of a problem document (RFC 9457).
PROBLEM_JSON = "application/problem+json"
#: Begins the `type` of a problem while PROBLEM_DOCS names no page. A name, not an address: it
#: resolves to nothing.
NAMESPACE = "urn:django-idempotency:problem:"

# ----------------------------------------------------------------------------- how a key is spelled

# A string of RFC 9651 section 3.3.3, as the IETF draft (section 2.1) has it: printable ASCII, in
# which only \" and \\ are escaped.
_QUOTED = r'"((?:[ !#-\[\]-~]|\\["\\])*)"'
# A bare key: visible ASCII and inner spaces, no quote; no comma either, since servers join two
# headers with one.
_BARE = r"[!#-+\--~](?:[ !#-+\--~]*[!#-+\--~])?"
# An item of RFC 9651 (section 4.2.3) that is a string. Nothing defines its parameters, so they do
# not count.
_VALUE = (
    r"-?\d{1,12}\.\d{1,3}|-?\d{1,15}|@-?\d{1,15}|\?[01]|:[A-Za-z0-9+/]*={0,2}:"
    r'|"(?:[ !#-\[\]-~]|\\["\\])*"|%"(?:[ '
    r'!#-$&-~]|%[0-9a-f]{2})*"|[A-Za-z*][!#$%&\'*+\-.^_`|~:/0-9A-Za-z]*'
)
# Any printable ASCII, as in a member of a body or in a parameter.
_MEMBER = re.compile(r"[!-~](?:[ -~]*[!-~])?")

#: How a header spells a key, and what it may look like then. Group 1 is what stands in quotes.
#: Official Stripe clients send unquoted keys that are not valid UUIDs: "either" accepts them.
_SPELLINGS = {
    "either": re.compile(f"{_QUOTED}|{_BARE}"),
    "bare": re.compile(r"[!-+\--~](?:[ -+\--~]*[!-+\--~])?"),
    "quoted": re.compile(rf"{_QUOTED}(?:; *[a-z*][a-z0-9_\-.*]*(?:=(?:{_VALUE}))?)*"),
    "opaque": _MEMBER,
}


def of_endpoint(key: str, path: str) -> str:
    """Return the key of a request to a path (percent-encoded), where each path has keys of its
    own.
    """
    named = f"{path} {key}"  # the first space ends the path
    if len(named) <= LONGEST:
        return named
    return f"sha256:{hashlib.sha256(named.encode()).hexdigest()}"


# ------------------------------------------------------------------------------ what a fact may be

_TOKEN = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
#: Headers with another meaning: secrets, and those that WSGI does not pass on as HTTP_….
_TAKEN = frozenset(
    {
        "accept",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "proxy-authorization",
    }
)


def is_free(name: Any) -> bool:
    """Is it the name of a request header that may be ours?"""
    return _is_header(name) and name.lower() not in _TAKEN


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


def _is_header(value: Any) -> bool:
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_status(value: Any, least: int = 100) -> bool:
    return isinstance(value, int) and least <= value < 600


def _are_statuses(value: Any) -> bool:
    return isinstance(value, Collection) and all(map(_is_status, value))


def _is_pattern(value: Any) -> bool:
    try:
        re.compile(value)
    except (TypeError, re.error):
        return False
    return True


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LONGEST


def _is_time(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < 3650 * 86400


def _are_of_problems(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(kind, type) and issubclass(kind, Problem) and _is_status(status, 400)
        for kind, status in value.items()
    )


def _are_of_replays(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_status, (*value, *value.values())))


_FREE = "the name of a header that HTTP itself does not use (letters, digits and hyphens)"
_HEADER = "the name of a header (letters, digits and hyphens)"
_TIME = (_is_time, "a number of seconds, 0 or more")
_FLAG = (lambda value: isinstance(value, bool), "True or False")

Fact = tuple[Callable[[Any], bool], str]


def _one_of(words: tuple[str, ...]) -> Fact:
    expected = " or ".join(f'"{word}"' for word in words)
    return lambda value: isinstance(value, str) and value in words, expected


def _or_none(accepts: Callable[[Any], bool], expected: str) -> Fact:
    return lambda value: value is None or accepts(value), f"{expected}, or None"


#: Each fact: what it may be, and in words what to type.
FACTS: Mapping[str, Fact] = {
    "name": (_is_name, "a word"),
    "carrier": _one_of(("header", "body", "query")),
    "field": (
        lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]+", value) is not None,
        "the name of a header, of a member of the body or of a parameter",
    ),
    "spelling": _one_of(tuple(_SPELLINGS)),
    "max_length": (_is_length, f"a number from 1 to {LONGEST}"),
    "pattern": _or_none(_is_pattern, "a regular expression"),
    "requires_key": _FLAG,
    "compares": _one_of(("request", "body")),
    "keys_per": _one_of(("client", "endpoint")),
    "grace": _TIME,
    "client_field": _or_none(is_free, _FREE),
    "first_sent_field": _or_none(is_free, _FREE),
    "window": _TIME,
    "ahead": _TIME,
    "statuses": (
        _are_of_problems,
        "a dict of problems and statuses from 400 to 599, such as {RequestMismatch: 409}",
    ),
    "refuses_methods": _FLAG,
    "remembers": _or_none(_are_statuses, "a set of statuses"),
    "replays_as": (_are_of_replays, "a dict of pairs of statuses, such as {201: 200}"),
    "marker": _or_none(_is_header, _HEADER),
    "marker_member": _or_none(_is_name, "the name of a member"),
    "original": _or_none(_is_header, _HEADER),
    "echoes": (_are_statuses, "a set of statuses"),
    "sets": (
        lambda value: isinstance(value, tuple) and all(map(_is_header, value)),
        "a tuple of names of headers",
    ),
    "error_type": (
        lambda value: isinstance(value, str) and "/" in value,
        'a content type, such as "application/json"',
    ),
    "pages": _FLAG,
}
#: Each method, and how it is called.
_METHODS = {
    "read_key": "read_key(self, sent, meta)",
    "status_of": "status_of(self, problem)",
    "headers": "headers(self, answer)",
    "error_body": "error_body(self, problem, status, request)",
}


# ---------------------------------------------------------------------------------------- a dialect


class Answer(NamedTuple):
    """A response whose headers a dialect makes."""

    #: The word of its header `Idempotency-Status` (`core.statuses`); "": it is about no key.
    status: str
    #: Its status code.
    code: int
    #: What the client has sent as its key in a header, once it was well formed; "": it was not.
    sent: str = ""
    #: The id of the request that did the work; "": it is not known.
    original: str = ""
    #: What is wrong; `None`: it is the response of a view, or its replay.
    problem: Problem | None = None


class Dialect:
    """How an API speaks about idempotency: facts, and four methods that a subclass overrides.

    A fact that cannot be raises `ValueError` where the class is made, and says what to type.
    """

    #: The name in schemas and lists; that of the class, in lower case, if a subclass has none.
    name: str = "dialect"

    #: Where the key is: in a "header", in a member of the "body" (JSON or a form), or in the
    #: "query".
    carrier: str = "header"
    #: The name of that header, member or parameter.
    field: str = "Idempotency-Key"
    #: How a header may spell the key: "bare", "quoted" as a string of RFC 9651, or "either"; or
    #: "opaque": bare, and a comma is one of its characters. Then two headers, which servers join
    #: with a comma, are one key.
    spelling: str = "either"
    #: The most characters of a key.
    max_length: int = LONGEST
    #: A regular expression that the whole key must match; `None`: any printable ASCII.
    pattern: str | None = None
    #: Does the API refuse each request without a key? Then a policy says required=True, too.
    requires_key: bool = False
    #: What of a request a retry must repeat, besides method and path: query, content type and body
    #: ("request"), or its "body" alone, which is JSON whatever its content type says.
    compares: str = "request"
    #: Is a key one key of its "client", or of each "endpoint" (path) that the client sends it to?
    keys_per: str = "client"
    #: For how long after its `ttl` a response is still replayed, for clients whose clocks differ
    #: (seconds).
    grace: float = 0
    #: A header that names the client, which `read_key()` puts before the key, with a space between;
    #: `None`: there is none.
    client_field: str | None = None
    #: A header that comes with the key and says when the client first sent the request, for
    #: `read_key()`; `None`: there is none.
    first_sent_field: str | None = None
    #: For how long after that a request is accepted, and how far ahead a client's clock may be
    #: (seconds).
    window: float = 0
    ahead: float = 0

    #: The statuses of problems that differ from our own. That of a class counts for its subclasses.
    statuses: ClassVar[Mapping[type[Problem], int]] = {}
    #: Is a key refused on a method that the policy does not guard? Otherwise the request runs, and
    #: is reported.
    refuses_methods: bool = False
    #: The statuses of the responses that are stored; `None`: by the table in `core.conclusions`.
    remembers: Collection[int] | None = None
    #: The status of a replay, where it differs from the first response's.
    replays_as: ClassVar[Mapping[int, int]] = {}

    #: The header that marks a replay, as "true", and the member of a JSON object that does; and the
    #: header with the id of the request that did the work.
    marker: str | None = "Idempotent-Replayed"
    marker_member: str | None = None
    original: str | None = "Original-Request"
    #: The statuses on which a response repeats the key in the header that carried it.
    echoes: Collection[int] = ()
    #: Other headers that `headers()` sets and that speak of one response only: they are not stored.
    sets: tuple[str, ...] = ()
    #: The content type of what `error_body()` returns, if that is not a page.
    error_type: str = PROBLEM_JSON
    #: May `error_body()` return a page? It is rendered in a thread then, if the view is async.
    pages: bool = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()
        for name in vars(cls).keys() - FACTS.keys():
            close = get_close_matches(name, FACTS, n=1, cutoff=0.85)
            if close and FACTS[close[0]][0](vars(cls)[name]):
                raise ValueError(f"{cls.__name__}.{name} is no fact. Did you mean {close[0]}?")
        for name, (accepts, expected) in FACTS.items():
            value = getattr(cls, name)
            if not accepts(value):
                raise ValueError(f"{cls.__name__}.{name} = {value!r}: {name} is {expected}.")
        for name, call in _METHODS.items():
            method = getattr(cls, name)
            if inspect.iscoroutinefunction(method) or not takes(method, call.count(",") + 1):
                raise ValueError(f"{cls.__name__}.{name} is a sync method: def {call}.")
        if cls.carrier == "header" and not is_free(cls.field):
            raise ValueError(f"{cls.__name__}.field = {cls.field!r}: field is {_FREE}.")
        if cls.first_sent_field is not None and (cls.carrier != "header" or not cls.window):
            raise ValueError(
                f"{cls.__name__}.first_sent_field = {cls.first_sent_field!r}: it needs "
                'carrier = "header", and a window above 0.'
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def read_key(self, sent: object, meta: Mapping[str, Any]) -> str | None:
        """Return the key in what a client has sent where the key is; `None`: it has sent none.

        `meta` is `request.META`. Raises `KeyMalformed`, and what else is wrong with the key. Quotes
        are not part of it: with "either", `"k"` and `k` are one key.
        """
        if sent is None:
            return None
        if self.carrier == "header":
            # A test client, or a middleware, may set a UUID.
            text = str(sent).strip(" " if self.spelling == "quoted" else " \t")
            pattern = _SPELLINGS[self.spelling]
        else:
            text = sent if isinstance(sent, str) else ""
            pattern = _MEMBER
        found = pattern.fullmatch(text)
        if found is None:
            raise self.malformed()
        key = found[0] if found.lastindex is None else re.sub(r"\\(.)", r"\1", found[1])
        if (
            not key
            or len(key) > self.max_length
            or (self.pattern and not re.fullmatch(self.pattern, key))
        ):
            raise self.malformed()
        return key

    def status_of(self, problem: Problem | type[Problem]) -> int:
        """Return the status of a problem, or of a kind of problem."""
        kind = problem if isinstance(problem, type) else type(problem)
        for each in kind.__mro__:
            if each in self.statuses:
                return self.statuses[each]
        return problem.status

    def headers(self, answer: Answer) -> dict[str, str]:
        """Return the headers of a response that speak of its key; "" takes away what a view has set
        under that name.
        """
        found: dict[str, str] = {}
        problem = answer.problem
        if problem is not None and "Retry-After" in problem.headers:
            found["Retry-After"] = problem.headers["Retry-After"]
        if not answer.status:
            return found
        if self.marker:
            found[self.marker] = "true" if answer.status == "replayed" else ""
        if self.original:
            found[self.original] = answer.original
        if self.echoes and self.carrier == "header":
            found[self.field] = answer.sent if answer.code in self.echoes else ""
        return found

    def error_body(self, problem: Problem, status: int, request: Any) -> Mapping[str, Any] | str:
        """Return the body of a problem's response: what JSON can hold, or the HTML of a page.

        `request` is Django's; `None`: it is an example in a schema, and no page is wanted. No key,
        no stored body, no stack.
        """
        return {
            "type": problem.docs or NAMESPACE + problem.code,
            "title": problem.title,
            "status": status,
            "detail": problem.detail,
            "code": problem.code,
            "retry": problem.retry,
            **problem.extensions,
        }

    def malformed(self) -> KeyMalformed:
        """Return the error that says what a key must be."""
        quoted = " in double quotes" if self.spelling == "quoted" else ""
        shape = f" that match {self.pattern}" if self.pattern else ""
        where = {"header": "header", "body": "member", "query": "parameter"}[self.carrier]
        return KeyMalformed(
            f"The idempotency key is malformed. Send 1 to {self.max_length} printable ASCII "
            f"characters{quoted}{shape} in the {where} {self.field}."
        )

    @cached_property
    def own_headers(self) -> frozenset[str]:
        """The lower-case names of the response headers that only this dialect sets."""
        named = [self.marker, self.original, *self.sets]
        if self.echoes and self.carrier == "header":
            named.append(self.field)
        return frozenset(name.lower() for name in named if name)


# ------------------------------------------------------------------------------------------ shipped


class Default(Dialect):
    """Speaks as we do where nothing else is asked for.

    Its header is `field`: that of the setting HEADER where a policy names the class, or "default".
    """

    def __init__(self, field: str = Dialect.field) -> None:
        self.field = field

    def malformed(self) -> KeyMalformed:
        """Return the error that says what a key must be, in its own words."""
        return KeyMalformed() if type(self) is Default else super().malformed()


class Draft(Dialect):
    """Speaks as the draft "The Idempotency-Key HTTP Header Field", -07: the key is a string of RFC
    9651, and nothing else.
    """

    spelling = "quoted"


class Stripe(Dialect):
    """Speaks as Stripe's API, v1. Everything is kept once the endpoint has begun, 500 included;
    refusals before that are not.
    """

    spelling = "bare"
    statuses: ClassVar = {RequestMismatch: 400}
    remembers = frozenset(range(200, 600)) - {400, 401, 403, 408, 409, 415, 425, 429}
    echoes = frozenset(range(100, 600))
    error_type = "application/json"

    def headers(self, answer: Answer) -> dict[str, str]:
        """Return the headers, with the one that says whether a retry makes sense."""
        found = super().headers(answer)
        if answer.problem is not None:
            again = answer.problem.retry_in is not None
            found["Stripe-Should-Retry"] = "true" if again else "false"
        return found

    def error_body(self, problem: Problem, status: int, request: Any) -> Mapping[str, Any]:
        """Return an error as Stripe's clients parse it."""
        code = problem.code.replace("-", "_")
        if problem.code == "in-progress":
            code = "idempotency_key_in_use"
        kind = "invalid_request_error" if status < 500 else "api_error"
        if problem.code in ("in-progress", "request-mismatch"):
            kind = "idempotency_error"
        page = {"doc_url": problem.docs} if problem.docs else {}
        return {"error": {"type": kind, "code": code, "message": problem.detail, **page}}


#: Those that a policy may name.
NAMED: Mapping[str, type[Dialect]] = {"default": Default, "draft": Draft, "stripe": Stripe}


#: How a policy and the settings name one, in words.
EXPECTED = (
    '"default", "draft", "stripe", or a Dialect, such as profile=PayPal() of contrib.dialects'
)


def is_dialect(value: Any) -> bool:
    """Is it one of the names, a dialect, or the class of one?"""
    if isinstance(value, str):
        return value in NAMED
    return isinstance(value, Dialect) or (isinstance(value, type) and issubclass(value, Dialect))


def dialect_of(value: str | Dialect | type[Dialect]) -> Dialect:
    """Return the dialect of a name or of a class, or the value itself."""
    if isinstance(value, str):
        value = NAMED[value]
    return value() if isinstance(value, type) else value
