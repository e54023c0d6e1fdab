"""What makes a request the same request: method, path, query, content type and the body by its meaning."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest
from django.http.request import RawPostDataException
from django.utils.datastructures import MultiValueDict

from ..core.hashing import canonical_json, framed, request_digest
from ..core.policy import FINGERPRINTS, Policy
from ..core.profiles import Profile
from ..errors import ConfigurationError
from . import bodies
from .selection import Document, asks_request, selected_part

#: What a project's function raises about a body that it cannot read, which the view reports: all of it is compared then.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


def fingerprint(request: Any, policy: Policy, document: Document | None = None) -> bytes:
    """Return the 32 bytes of a request's digest. `request` is Django's, or DRF's around it.

    `document` is what an expression selects from. Raises what reading the body raises in a view
    (`UnreadablePostError`), `RequestTooLarge` for more than the policy's `max_request_body`, and
    `ConfigurationError` when the body was read already or `policy.fingerprint` returns what is not a fingerprint.
    """
    http: HttpRequest = getattr(request, "_request", request)
    content_type = (http.content_type or "").lower()
    parts = [str(http.method), http.path, http.META.get("QUERY_STRING", ""), content_type]
    head = framed(map(_text, parts))
    rule: Any = policy.fingerprint
    if rule == "headers":
        return request_digest(head, b"headers")
    is_own = asks_request(rule)
    if not is_own and rule not in FINGERPRINTS:
        selected = selected_part(document or Document(request, None, policy.max_request_body), rule)
        if selected is not None:  # the query counts only if it is selected, too
            return request_digest(framed(map(_text, parts[:2])), b"selected", selected)
    bodies.require_bounded(http, policy.max_request_body)
    if is_own:
        try:
            found = rule(request)
        except _UNREADABLE:
            pass
        else:
            return request_digest(head, b"custom", _custom(found))
    return _with_body(head, request, _ignored(policy), by_value=rule != "raw")


def _ignored(policy: Policy) -> frozenset[str]:
    """Return the fields of a form that do not identify the request: the CSRF token, and a key that is one of them."""
    profile = policy.profile
    if isinstance(profile, Profile) and profile.carrier == "body":
        return frozenset({bodies.CSRF_FIELD, profile.field})
    return frozenset({bodies.CSRF_FIELD})


def _with_body(head: bytes, request: Any, ignored: frozenset[str], *, by_value: bool) -> bytes:
    http: HttpRequest = getattr(request, "_request", request)
    content_type = (http.content_type or "").lower()
    if by_value and content_type in bodies.FORMS and bodies.is_parsed_as_form(request, http):
        fields = bodies.form(request, http)
        if fields is not None:
            return request_digest(head, b"form", _form(request, fields, ignored))
    try:
        if by_value and bodies.is_json(content_type) and bodies.fits(http):
            canonical = canonical_json(http.body)
            if canonical is not None:
                return request_digest(head, b"json", canonical)
        return request_digest(head, b"bytes", _hash(bodies.chunks(http)))
    except RawPostDataException:  # the CSRF check has parsed a form, or a DRF permission the data
        return request_digest(head, b"parsed", _form(request, bodies.read_already(request, http), ignored))


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
