"""What identifies a request: its key, whose that is, and what must not change under it."""

from __future__ import annotations

import logging
from enum import Enum
from typing import Any, Literal, NamedTuple

from django.http import HttpRequest
from django.utils.encoding import escape_uri_path

from ..core.key_formats import ISSUED, ISSUED_SAMPLE, kept_for
from ..core.policy import Resolved
from ..core.records import Ticket, UnprintedText, prints
from ..errors import KeyAhead, KeyExpired, KeyMalformed, ScopeRequired
from ..runtime.tickets import issue
from .fingerprint import fingerprint
from .keys import request_id_of, scope_of
from .selection import Document, key_in_body, selected_key
from .unguarded import NOBODY, leave_unguarded
from .wings import wing

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
    """A key, its qualified scope, and the request that they came with."""

    key: str
    scope: str
    document: Document

    def ticket(self, policy: Resolved) -> Ticket:
        """Return the ticket of the request. Raises what `fingerprint()` raises."""
        http = self.document.http
        return issue(
            policy,
            scope=self.scope,
            key=self.key,
            digest=fingerprint(self.document.source, policy, self.document),
            method=http.method or "",
            path=escape_uri_path(http.path),
            request_id=request_id_of(http, policy),
            ttl=kept_for(policy.key_format, policy.ttl),
        )


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
    document = Document(source, user, policy.max_request_body)
    if policy.profile.carrier == "body":
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
    selected = carried or selected_key(document, policy, scope)
    return None if selected is None else Identity(UnprintedText(selected), scope, document)
