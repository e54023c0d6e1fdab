"""Keys that the server issues and knows again, for `key_format="issued"`: at `POST
/idempotency-tokens`, and in a form.

    path("", include("django_idempotency.contrib.limits.issued_keys"))

routes nothing else. The view here is for Django's own authentication; REST framework's is in
`contrib.rest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple
from urllib.parse import unquote

from django.http import HttpRequest, JsonResponse
from django.http.request import RawPostDataException
from django.urls import Resolver404, get_script_prefix, path, resolve

from ... import Policy
from ...api import Resolved
from ...api.requests import (
    Document,
    issue_key,
    own_policy,
    require_bounded,
    resolve_policy,
    scope_of,
    speak,
)
from ...errors import KeyNotIssued, ScopeRequired
from ..views import OwnView

#: The longest body of a request for a key (bytes).
MAX_REQUEST = 8 * 1024
#: As long as a key that nobody can guess, such as one that is issued.
_LONG = "A" * 64
_METHODS = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key, and the moment from which it is refused."""

    # Error reports print the rest.
    key: str = field(repr=False)
    expires_at: datetime

    @property
    def document(self) -> dict[str, str]:
        """What a client gets, as JSON can express it."""
        return {
            "key": self.key,
            "expires_at": self.expires_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        }


class Destination(NamedTuple):
    """The only requests that a key is for. The path has no query, and is not percent-encoded."""

    method: str
    path: str


def issue_to(request: HttpRequest, user: Any, policy: Policy, source: Any) -> IssuedKey:
    """Return a new key for the user, or for the scope of the policy, that is only for the
    destination if one is named.

    Who asks is judged first, by `policy`: a client without a principal learns nothing of the
    project's paths. Then the destination's own policy goes before it. `source` is the request that
    the view sees, DRF's or Django's.

    Raises `ScopeRequired`, `KeyNotIssued` for a destination that takes none or a body that names
    none, `RequestTooLarge`, and `ConfigurationError` if the policy contradicts the settings.
    """
    terms = resolve_policy(policy)
    speak(request, terms.profile)
    _scope(terms, request, user)
    destination = _destination_in(user, source)
    if destination is not None:
        terms = resolve_policy(policy_at(destination, policy, getattr(request, "urlconf", None)))
        speak(request, terms.profile)
    return issue_on(terms, request, user, destination)


def issue_on(
    terms: Resolved, request: HttpRequest, user: Any, destination: Destination | None = None
) -> IssuedKey:
    """Return a new key on the terms of a policy.

    Raises `ScopeRequired`, and `KeyNotIssued` if the policy takes none.
    """
    if destination is not None:
        _require_issued(terms, destination)
    scope = _scope(terms, request, user)
    now = datetime.now(timezone.utc)
    bound = {} if destination is None else destination._asdict()
    return IssuedKey(issue_key(scope, now, **bound), now + timedelta(seconds=terms.ttl))


def _scope(terms: Resolved, request: HttpRequest, user: Any) -> str:
    scope = scope_of(request, user, terms, _LONG)
    if scope is None:
        raise ScopeRequired(
            "It is unknown which client this idempotency key would belong to, so none was "
            "issued. Authenticate."
        )
    return scope


def policy_at(destination: Destination, fallback: Policy, urlconf: Any = None) -> Policy:
    """Return the policy that a view at an address has of its own; `fallback` if it has none, or
    chooses one later.

    Raises `KeyNotIssued` if there is no view.
    """
    prefix = get_script_prefix().rstrip("/")
    try:
        callback = resolve(destination.path.removeprefix(prefix), urlconf=urlconf).func
    except Resolver404 as error:
        raise KeyNotIssued(
            "No idempotency key was issued: there is nothing at this path."
        ) from error
    return own_policy(callback, destination.method) or fallback


def _require_issued(terms: Resolved, destination: Destination) -> None:
    guarded = destination.method in {name.upper() for name in terms.methods}
    if terms.key_format not in ("any", "issued") or not guarded:
        raise KeyNotIssued(
            f"No idempotency key was issued: a {destination.method} request to this path "
            "takes no key that is issued."
        )


def _destination_in(user: Any, source: Any) -> Destination | None:
    """Return the destination that the body of a request names, as JSON or a form; `None` for an
    empty body.
    """
    document = Document(source, user, MAX_REQUEST)
    require_bounded(document.http, MAX_REQUEST)
    try:
        body = document["body"]
        if document.unreadable and not document.http.body:
            return None
    except RawPostDataException as error:
        raise KeyNotIssued(_EXPECTED) from error
    if not isinstance(body, Mapping) or not set(body) <= {"method", "path"}:
        raise KeyNotIssued(_EXPECTED)
    method = body.get("method", "POST")
    address = body.get("path")
    if address is None and "method" not in body:
        return None
    return named(method, address)


_EXPECTED = (
    'No idempotency key was issued. Send nothing, or JSON or a form with "path", such as '
    '"/orders/", and perhaps "method": '
    "POST, PUT, PATCH or DELETE."
)


def named(method: object, address: object) -> Destination:
    """Return the destination with this method and path, which may have a query.

    Raises `KeyNotIssued`.
    """
    if not isinstance(address, str) or not address.startswith("/") or address.startswith("//"):
        raise KeyNotIssued(_EXPECTED)
    if not isinstance(method, str) or method.upper() not in _METHODS:
        raise KeyNotIssued(_EXPECTED)
    return Destination(method.upper(), unquote(address.partition("?")[0].partition("#")[0]))


class IdempotencyTokenView(OwnView):
    """Issues keys, for `Policy(key_format="issued")`. To whom is decided around it.

    `policy` names the scope and the lifetime of keys that are for any address. One that is for an
    address has those of the view there, and is issued to those whom `policy` knows.
    """

    http_method_names = ["post", "options"]  # noqa: RUF012 - Django's own shape
    #: `manage.py check` looks for a view that has this.
    issues_idempotency_keys = True

    def post(self, request: HttpRequest) -> JsonResponse:
        """Return a new key, and until when it is accepted."""
        user = getattr(request, "user", None)
        issued = issue_to(request, user, self.policy, request)
        return JsonResponse(issued.document, status=201)


urlpatterns = [
    path("idempotency-tokens", IdempotencyTokenView.as_view(), name="idempotency-tokens")
]
