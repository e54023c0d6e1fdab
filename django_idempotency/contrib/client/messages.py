"""What is sent and what comes back, for every HTTP library; and how both are stored: as JSON,
sealed if a key seals.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from ...api import canonical_json
from ...core.hashing import request_digest
from ...inspection.redaction import secret_name
from ..at_rest.columns import seal, unseal

Headers = tuple[tuple[str, str], ...]

#: Headers that the client of a resumed call sets anew.
_OF_THE_CLIENT: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "user-agent"}
)
#: Headers of a response that describe its bytes on the wire; what is kept is decoded.
_OF_THE_WIRE: Final = frozenset(
    {"content-encoding", "content-length", "transfer-encoding", "connection"}
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OutgoingRequest:
    """A request, whose body is known unless it is a stream."""

    method: str
    url: str
    headers: Headers
    body: bytes
    #: Can its body be read only once? Then it is not here.
    streamed: bool = False

    def header(self, name: str) -> str | None:
        """Return a header; `None`: it has none of that name."""
        return next((value for each, value in self.headers if each.lower() == name.lower()), None)

    @property
    def digest(self) -> bytes:
        """Hash what makes it the same request: method, URL, and the body, JSON by value."""
        by_value = None
        if any(name.lower() == "content-type" and "json" in value for name, value in self.headers):
            by_value = canonical_json(self.body)
        body = (b"bytes", self.body) if by_value is None else (b"json", by_value)
        return request_digest(b"call", self.method.encode(), self.url.encode(), *body)

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2].lower()

    @property
    def shown_url(self) -> str:
        """Return the URL without what may be secret: user, password, query and fragment."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, self.host, parts.path, "", ""))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer:
    """A response, its body decoded."""

    status: int
    headers: Headers
    body: bytes
    #: How the call went. The transports hand it to the caller.
    facts: CallFacts | None = field(default=None, compare=False)

    @property
    def by_name(self) -> dict[str, str]:
        """Return the headers under names in lower case."""
        return {name.lower(): value for name, value in self.headers}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CallFacts:
    """How a call went: `response.extensions["idempotency"]` of httpx, `response.idempotency` of
    requests.
    """

    name: str
    key: str
    #: Those of every process.
    attempts: int
    #: Is it the response of an earlier call, which we have stored? Then nothing was sent.
    stored: bool
    #: Did the provider replay it?
    replayed: bool
    #: The provider's id of the request that did the work; empty: it sent none.
    reference: str


def wire_free(headers: Headers) -> Headers:
    """Return a response's headers without those that describe its bytes on the wire."""
    return tuple((name, value) for name, value in headers if name.lower() not in _OF_THE_WIRE)


def reference_of(answer: Answer) -> str:
    """Return what the provider calls the request that did the work."""
    headers = answer.by_name
    found = next(
        (
            headers[name]
            for name in ("original-request", "request-id", "x-request-id")
            if name in headers
        ),
        "",
    )
    return found[:255]


def is_replayed(answer: Answer) -> bool:
    """Does the provider say that this is a replay?"""
    headers = answer.by_name
    names = ("idempotent-replayed", "idempotency-replayed")
    return any(headers.get(name, "").strip().lower() == "true" for name in names)


# ------------------------------------------------------------------------------------------ at rest

#: The columns that are sealed, and what each is sealed as.
KINDS = {"request": b"call request", "response": b"call response"}


def pack_request(call: UUID, request: OutgoingRequest, *, key_header: str) -> bytes:
    """Return what a call is resumed with.

    Credentials and keys are left out: the provider's client has them.
    """
    kept = [
        (name, value)
        for name, value in request.headers
        if name.lower() not in {*_OF_THE_CLIENT, key_header.lower()} and not secret_name(name)
    ]
    return _packed(KINDS["request"], call, [request.method, request.url, kept, _text(request.body)])


def unpack_request(call: UUID, stored: bytes) -> OutgoingRequest:
    """Return the request of a call. Raises `CannotOpen`."""
    method, url, headers, body = _unpacked(KINDS["request"], call, stored)
    return OutgoingRequest(
        method=method, url=url, headers=_pairs(headers), body=base64.b64decode(body)
    )


def pack_answer(call: UUID, answer: Answer) -> bytes:
    """Return what is stored of a response: all but its status, which is a column, and its
    cookies.
    """
    kept = [(name, value) for name, value in answer.headers if name.lower() != "set-cookie"]
    return _packed(KINDS["response"], call, [kept, _text(answer.body)])


def unpack_answer(call: UUID, stored: bytes, *, status: int) -> Answer:
    """Return a stored response. Raises `CannotOpen`."""
    headers, body = _unpacked(KINDS["response"], call, stored)
    return Answer(status=status, headers=_pairs(headers), body=base64.b64decode(body))


def _packed(kind: bytes, call: UUID, value: Any) -> bytes:
    return seal(json.dumps(value).encode(), kind, call.bytes)


def _unpacked(kind: bytes, call: UUID, stored: bytes) -> Any:
    return json.loads(unseal(stored, kind, call.bytes))


def _text(body: bytes) -> str:
    return base64.b64encode(body).decode()


def _pairs(headers: Any) -> Headers:
    return tuple((str(name), str(value)) for name, value in headers)
