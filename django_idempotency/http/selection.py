"""Selects from a request: the key of clients that send none, and the part of a payload that must
not change.

An expression sees one document: `body`, `headers` (lower case), `method`, `path`, `query` and
`user`. Only what it selects is read, and nothing that the view would not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeGuard
from uuid import UUID

from django.http import HttpRequest
from django.http.request import RawPostDataException
from django.utils.datastructures import MultiValueDict

from ..core.canonical import TooDeep, UnhashableValue, canonical_bytes, digest
from ..core.expressions.compiled import selector_of
from ..core.expressions.functions import Unpackable, from_json
from ..core.key_formats import ANY, ISSUED
from ..core.policy import DOCUMENT, ENFORCE, FINGERPRINTS, SELECTING, WARN, Policy, Resolved
from ..core.records import UnprintedBytes, prints
from ..core.selectors import Selector
from ..errors import ConfigurationError, KeyMissing, NotSelectable
from .bodies import (
    CSRF_FIELD,
    FORMS,
    fits,
    form_fields,
    is_json,
    is_parsed_as_form,
    read_already,
    receive,
    require_bounded,
)
from .issued_keys import require_bound
from .plan import formatted
from .unguarded import KEYLESS, NO_KEY, leave_unguarded

#: JSON longer than this (bytes) is not selected from.
MAX_SELECTABLE = 1024 * 1024
#: The prefix of a selected key in `request.idempotency.key` and in the store.
PREFIX = "sel:"

_UNREADABLE = (
    "The idempotency key of this request is selected from its body, which cannot be read. "
    "Send JSON of at most 1 MiB, or a "
    "well-formed form."
)


# -------------------------------------------------------------------------------------- declaration


def compile_given(policy: Policy) -> None:
    """Compile the expressions of a policy. Raises `ValueError`, which says what to type instead."""
    for field in SELECTING:
        value = policy.given().get(field)
        if isinstance(value, (str, Selector)) and value not in FINGERPRINTS:
            try:
                compiled(value)
            except ValueError as error:
                raise ValueError(f"Policy({field}={value!r}): {error}") from error


@lru_cache(maxsize=512)
def compiled(expression: str | Selector) -> Selector:
    """Return the selector of an expression over the document; a `Selector` is returned unchanged.

    Raises `ValueError` for an invalid expression, and for a name that the document does not have.
    """
    selector = selector_of(expression)
    for name in sorted(selector.roots.difference(DOCUMENT)):
        close = next(iter(get_close_matches(name, DOCUMENT, n=1)), f"body.{name}")
        raise ValueError(
            f"{expression!r} asks for {name!r}, but a request has {', '.join(DOCUMENT)}. "
            f"Type {close!r} instead."
        )
    return selector


def asks_request(rule: object) -> TypeGuard[Callable[[Any], Any]]:
    """Is a key or a fingerprint a function of the request?

    A selector is a function of the document.
    """
    return callable(rule) and not isinstance(rule, Selector)


def _selector(expression: str | Callable[[Any], Any]) -> Selector:
    try:
        return (
            compiled(expression)
            if isinstance(expression, (str, Selector))
            else selector_of(expression)
        )
    except ValueError as error:  # from a setting, or from get_idempotency_policy()
        raise ConfigurationError(str(error)) from error


# ------------------------------------------------------------------------------------------ the key


def key_in_body(document: Document, policy: Resolved) -> str | None:
    """Return the key in a member of the body, as the profile has it, or `None` without one.

    Raises `KeyMissing` if a key is required, and what `read_key()` and `formatted()` raise.
    """
    body = document["body"]
    found = body.get(policy.profile.field) if isinstance(body, Mapping) else None
    key = policy.profile.read_key(found, document.http.META)
    if key is not None:
        return formatted(key, policy)
    if policy.required is True:
        raise KeyMissing(_UNREADABLE if document.unreadable else "")
    if policy.required == WARN:
        leave_unguarded(document.http, KEYLESS)
    elif document.unreadable and document.has_fields:
        leave_unguarded(document.http, NO_KEY, "its key may be in its body, which cannot be read")
    return None


def selected_key(document: Document, policy: Policy, scope: str) -> str | None:
    """Return the key that a policy selects from a request, or `None` when all or part of it is
    missing.

    Raises `KeyMissing` instead if a key is required, what `formatted()` raises, `KeyForeign`,
    `BodyIncomplete`, and `ConfigurationError` for values that cannot be hashed.
    """
    assert policy.key is not None
    selector = _selector(policy.key)
    http = document.http
    if asks_request(policy.key) and fits(http):  # it may read the body, or half of it
        receive(document.source, reads=policy.mode == ENFORCE)
    try:
        found = selector(document.source if asks_request(policy.key) else document)
        reason = NO_KEY.sentence if selector.is_missing(found) else ""
        if reason and document.unreadable:
            reason = "its key is selected from its body, which cannot be read"
    except NotSelectable as error:
        found = None
        reason = str(error)
    if not reason:
        if policy.key_format != ANY:
            text = str(found) if isinstance(found, UUID) else found
            found = formatted(text if isinstance(text, str) else "", policy)
            if policy.key_format == ISSUED:
                require_bound(found, scope, http)
        try:
            # With method and path, so that no two routes share a key.
            return PREFIX + digest([str(http.method), http.path, found])
        except TooDeep:  # the client's fault
            reason = "the data that its key is selected from is nested too deep"
        except UnhashableValue as error:
            raise ConfigurationError(f"Policy.key cannot be hashed: {error}") from error
    if policy.required is True:
        raise KeyMissing(_UNREADABLE if document.unreadable else "")
    leave_unguarded(http, NO_KEY, reason)
    return None


# ---------------------------------------------------------------------------------- the fingerprint


def selected_part(document: Document, expression: str | Callable[[Any], Any]) -> bytes | None:
    """Return the part that must not change, as bytes; `None` if only the whole request can be
    compared.

    That is when the body is selected from and cannot be parsed, lacks what is selected, or is
    nested too deep.
    """
    try:
        found = _selector(expression)(document)
    except NotSelectable:
        return None
    if document.unreadable:
        return None
    try:
        return canonical_bytes(found)
    except TooDeep:
        return None
    except UnhashableValue as error:
        raise ConfigurationError(f"Policy.fingerprint cannot be hashed: {error}") from error


def selected_facts(document: Document, rule: str | Callable[[Any], Any], of: str) -> bytes | None:
    """Return what the rule `of` an extension selects, as bytes; `None` if all or part of it is
    missing or cannot be read.
    """
    selector = _selector(rule)
    try:
        found = selector(document.source if asks_request(rule) else document)
        return None if selector.is_missing(found) else UnprintedBytes(canonical_bytes(found))
    except (NotSelectable, TooDeep):
        return None
    except UnhashableValue as error:
        raise ConfigurationError(f"{of} cannot be hashed: {error}") from error


# ------------------------------------------------------------------------------------- the document


@prints()
class Document(Mapping[str, Any]):
    """A request as an expression sees it. `source` is Django's, or DRF's around it.

    A body of more than `limit` bytes raises `RequestTooLarge` if an expression selects from it, and
    one that is cut short `BodyIncomplete`.
    """

    def __init__(self, source: Any, user: Any, limit: int | None = None) -> None:
        self.source = source
        self._limit = limit
        self.http: HttpRequest = getattr(source, "_request", source)
        self._user = user
        self._body: list[Any] = []
        #: Was the body selected from, and could it not be parsed?
        self.unreadable = False
        #: Was it of a type that has fields?
        self.has_fields = False

    def __iter__(self) -> Iterator[str]:
        return iter(DOCUMENT)

    def __len__(self) -> int:
        return len(DOCUMENT)

    def __getitem__(self, name: str) -> Any:
        if name not in DOCUMENT:
            raise KeyError(name)
        return getattr(self, f"_get_{name}")()

    def _get_method(self) -> str | None:
        return self.http.method

    def _get_path(self) -> str:
        return self.http.path

    def _get_headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.http.headers.items()}

    def _get_query(self) -> dict[str, Any]:
        return _pairs(self.http.GET)

    def _get_user(self) -> Any:
        return self._user if getattr(self._user, "is_authenticated", False) else None

    def _get_body(self) -> Any:
        if not self._body:
            self._body.append(self._parsed())
        return self._body[0]

    def _parsed(self) -> Any:
        """Return JSON, with decimals for fractions, or the fields of a form; otherwise `None`, and
        set `unreadable`.
        """
        content_type = (self.http.content_type or "").lower()
        is_form = content_type in FORMS and is_parsed_as_form(self.source, self.http)
        if is_form or is_json(content_type):
            self.has_fields = True
            require_bounded(self.http, self._limit)
            receive(self.source)
        try:
            if is_form:
                fields = form_fields(self.source, self.http)
                if fields is not None:
                    return _pairs(fields)
            elif (
                is_json(content_type) and fits(self.http) and len(self.http.body) <= MAX_SELECTABLE
            ):
                return from_json(self.http.body)
        except Unpackable:
            pass
        except RawPostDataException:  # a permission class has read the data
            data = read_already(self.source, self.http)
            return _pairs(data) if isinstance(data, MultiValueDict) else data
        self.unreadable = True
        return None


def _pairs(data: MultiValueDict[str, Any]) -> dict[str, Any]:
    """Return a form's fields: text for a name that occurs once, else a list of texts."""
    return {
        name: values[0] if len(values) == 1 else list(values)
        for name, values in data.lists()
        if name != CSRF_FIELD
    }
