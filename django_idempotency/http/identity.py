"""What identifies a request: its key, whose that is, and what must not change under it.

That is its method, path, query, content type, and the body by its meaning. What a policy selects is the part of `selection`,
which is loaded for policies that select.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import uuid4

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest
from django.http.request import RawPostDataException
from django.utils.datastructures import MultiValueDict
from django.utils.encoding import escape_uri_path

from ..core.hashing import canonical_json, framed, record_id, request_digest
from ..core.key_formats import ANY, ISSUED, ISSUED_SAMPLE, kept_for
from ..core.policy import FINGERPRINTS, SELECTING, Policy, Resolved
from ..core.profiles import Profile
from ..core.records import Ticket, UnprintedText, prints
from ..errors import ConfigurationError, KeyAhead, KeyExpired, KeyMalformed, ScopeRequired
from ..runtime.wings import wing
from . import bodies
from .keys import request_id_of, scope_of
from .unguarded import NOBODY, leave_unguarded

if TYPE_CHECKING:
    from .selection import Document

logger = logging.getLogger("django_idempotency")
_NO_PRINCIPAL = (
    "%s %s was refused with scope-required: its key belongs to no user. Let the view require one, or type scope=… or "
    'anonymous="shared" in its policy.'
)


class Where(Enum):
    """Where the key is, if not in the header."""

    PAYLOAD = "payload"


Key = str | Literal[Where.PAYLOAD]
#: Keys that no request can use, as far as is known before its principal.
UNUSABLE = (KeyMalformed, KeyExpired, KeyAhead)


@prints("scope")
class Identity(NamedTuple):
    """A key, its qualified scope, and the request that they came with: `source` as the view sees it, of this user."""

    key: str
    scope: str
    source: Any
    user: Any
    #: As an expression has seen it.
    seen: Document | None = None

    def document(self, policy: Resolved) -> Document:
        """Return the request as an expression sees it."""
        from .selection import Document

        return self.seen or Document(self.source, self.user, policy.max_request_body)

    def ticket(self, policy: Resolved, issue: Callable[..., Ticket]) -> Ticket:
        """Return the ticket of the request, which `issue` makes. Raises what `fingerprint()` raises."""
        http: HttpRequest = getattr(self.source, "_request", self.source)
        dated = {} if policy.key_format == ANY else {"ttl": kept_for(policy.key_format, policy.ttl)}
        return issue(
            id=record_id(self.scope, self.key),
            scope=self.scope,
            key=self.key,
            digest=fingerprint(self.source, policy, self.user, self.seen),
            owner=uuid4(),  # from the operating system: neither a fork nor a snapshot repeats it
            now=datetime.now(timezone.utc),
            method=http.method or "",
            path=escape_uri_path(http.path)[:255],
            request_id=request_id_of(http, policy) if policy.request_id_header in http.META else "",
            **dated,
        )


def compile_expressions(policy: Policy) -> None:
    """Compile a policy's expressions. Raises `ValueError`, which says what to type instead."""
    if not policy.given().keys().isdisjoint(SELECTING):
        from .selection import compile_given

        compile_given(policy)


def has_owner(request: HttpRequest, user: Any, policy: Resolved) -> bool:
    """Does a request have a principal, whatever its key is; or may it not run without one?"""
    return policy.required is True or scope_of(request, user, policy, ISSUED_SAMPLE) is not None


def identify(
    request: HttpRequest, policy: Resolved, *, key: Key, user: Any, source: Any, strict: bool
) -> Identity | None:
    """Return the identity of a keyed request; for a key without a principal `None`, or if `strict` `ScopeRequired`.

    A key that was issued for another principal or another address is a `KeyForeign`.

    If keys are required it is always `ScopeRequired`: nothing may run unguarded there. A request without the header is
    refused only then, and also gets `None` when there is nothing to select its key from. `source` is the request that
    the view sees (DRF's, or Django's), which parses the body as the view would.
    """
    document = None
    if policy.profile.carrier == "body":
        from .selection import Document, key_in_body

        document = Document(source, user, policy.max_request_body)
        if policy.required is True and scope_of(request, user, policy, ISSUED_SAMPLE) is None:
            raise ScopeRequired  # its body is not read
        if (found := key_in_body(document, policy)) is None:
            return None
        key = found
    carried = "" if key is Where.PAYLOAD else key
    scope = scope_of(request, user, policy, carried)
    if scope is None:
        if policy.required is True or (strict and carried):
            facts = {"event": "refused", "reason": ScopeRequired.code, "method": request.method}
            path = escape_uri_path(request.path)
            logger.warning(_NO_PRINCIPAL, request.method, path, extra={"idempotency": {**facts, "path": path}})
            raise ScopeRequired
        if strict or carried:
            leave_unguarded(request, NOBODY)
        return None
    if carried and policy.key_format == ISSUED:
        wing("issued_keys").require_bound(
            carried.rpartition(" ")[2], scope, request
        )  # before the space stands its client's name
    if carried:
        return Identity(UnprintedText(carried), scope, source, user, document)
    from .selection import Document, selected_key

    document = Document(source, user, policy.max_request_body)
    selected = selected_key(document, policy, scope)
    return None if selected is None else Identity(UnprintedText(selected), scope, source, user, document)


# --------------------------------------------------------------------------------------------------- the fingerprint

#: What a project's function raises about a body that it cannot read, which the view reports: all of it is compared then.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


def fingerprint(request: Any, policy: Policy, user: Any = None, document: Document | None = None) -> bytes:
    """Return the 32 bytes of a request's digest. `request` is Django's, or DRF's around it.

    An expression selects from `document`, or may select this `user`. Raises what reading the body raises in a view
    (`UnreadablePostError`), `RequestTooLarge` for more than the policy's `max_request_body`, and
    `ConfigurationError` when the body was read already or `policy.fingerprint` returns what is not a fingerprint.
    """
    http: HttpRequest = getattr(request, "_request", request)
    parts = (str(http.method), http.path, http.META.get("QUERY_STRING", ""), (http.content_type or "").lower())
    texts = [
        part.encode("utf-8", "surrogatepass") for part in parts
    ]  # a client's charset may decode to lone surrogates
    rule: Any = policy.fingerprint
    if rule == "headers":
        return request_digest(framed(texts), b"headers")
    asks = False
    if rule not in FINGERPRINTS:
        from .selection import Document, asks_request, selected_part

        if not (asks := asks_request(rule)):
            selected = selected_part(document or Document(request, user, policy.max_request_body), rule)
            if selected is not None:  # the query counts only if it is selected, too
                return request_digest(framed(texts[:2]), b"selected", selected)
    bodies.require_bounded(http, policy.max_request_body)
    head = framed(texts)
    if asks:
        try:
            found = rule(request)
        except _UNREADABLE:
            pass
        else:
            return request_digest(head, b"custom", _custom(found))
    in_memory = rule != "raw" and bodies.is_json(parts[3]) and bodies.is_in_memory(http)
    if in_memory and (canonical := canonical_json(http.body)) is not None:
        return request_digest(head, b"json", canonical)
    return _with_body(head, request, policy, by_value=rule != "raw")


def _ignored(policy: Policy) -> frozenset[str]:
    """Return the fields of a form that do not identify the request: the CSRF token, and a key that is one of them."""
    profile = policy.profile
    if isinstance(profile, Profile) and profile.carrier == "body":
        return frozenset({bodies.CSRF_FIELD, profile.field})
    return frozenset({bodies.CSRF_FIELD})


def _with_body(head: bytes, request: Any, policy: Policy, *, by_value: bool) -> bytes:
    http: HttpRequest = getattr(request, "_request", request)
    content_type = (http.content_type or "").lower()
    if by_value and content_type in bodies.FORMS and bodies.is_parsed_as_form(request, http):
        fields = bodies.form(request, http)
        if fields is not None:
            return request_digest(head, b"form", _form(request, fields, _ignored(policy)))
    try:
        if by_value and bodies.is_json(content_type) and bodies.fits(http):
            canonical = canonical_json(http.body)
            if canonical is not None:
                return request_digest(head, b"json", canonical)
        return request_digest(head, b"bytes", _hash(bodies.chunks(http)))
    except RawPostDataException:  # the CSRF check has parsed a form, or a DRF permission the data
        return request_digest(head, b"parsed", _form(request, bodies.read_already(request, http), _ignored(policy)))


def _text(value: Any) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")  # a client's charset may decode to lone surrogates


#: Precedes parsed values that are not text: UTF-8 does not have this byte, so `1` is not `"1"`.
_NO_TEXT = b"\xff"


def _custom(value: Any) -> bytes:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise ConfigurationError(f"Policy.fingerprint must return bytes or text, not {type(value).__name__}.")


def _hash(chunks: Iterator[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def _form(request: Any, fields: Any, ignored: frozenset[str]) -> bytes:
    return framed([*_pairs(fields, ignored), b"files", *_pairs(request.FILES, ignored)])


def _pairs(data: Any, ignored: frozenset[str]) -> Iterator[bytes]:
    """Yield each name with its values. A project's parser may return anything, not only pairs."""
    if isinstance(data, MultiValueDict):
        pairs = list(data.lists())
    elif isinstance(data, dict):
        pairs = [(str(name), [value]) for name, value in data.items()]
    else:
        yield _NO_TEXT + _value(data)
        return
    for name, values in sorted(pairs, key=lambda pair: pair[0]):
        if name not in ignored:
            yield framed([_text(name), *map(_value, values)])


def _value(value: Any) -> bytes:
    if isinstance(value, UploadedFile):
        content = _hash(iter(value.chunks()))
        value.seek(0)
        return framed([_text(value.name or ""), _text(value.content_type or ""), content])
    if isinstance(value, str):
        return _text(value)
    try:
        return _NO_TEXT + _text(json.dumps(value, sort_keys=True, default=_nested))
    except (TypeError, ValueError, RecursionError):  # names of several types, a circle
        return _NO_TEXT + _text(repr(value))


def _nested(value: Any) -> str:
    """Return a substitute for what JSON cannot express; a file among the fields counts by its content."""
    return _value(value).hex() if isinstance(value, UploadedFile) else repr(value)
