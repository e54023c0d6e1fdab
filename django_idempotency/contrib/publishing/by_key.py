"""Tells a client about its own operation when it knows only the key.

Nothing is written for a key by asking. The view here is for Django's own authentication; REST
framework's is in `contrib.rest`.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.http import HttpRequest, JsonResponse
from django.utils.encoding import escape_uri_path
from django.utils.http import http_date

from ... import Policy, conf
from ...api import BaseStore, Dialect, Guarantee, Record, Resolved, Status
from ...api.requests import refer_to, scope_of, speak
from ...core import rules
from ...core.dialects import of_endpoint
from ...core.failures import response_of
from ...core.hashing import record_id
from ...core.records import CANCELLATIONS, HELD
from ...core.states import RecordState, state_of
from ...errors import KeyMalformed, KeyUnknown, LostRace, ScopeRequired
from ...http.plan import formatted_behind_client
from ...runtime.registry import store_of
from ..views import OwnView


class IdempotencyKeyView(OwnView):
    """Lets a client ask about its own operation. Who may is decided around it.

    `policy` names the store, the scope and the lifetime, as of the views whose keys these are.
    """

    http_method_names = ["get", "options"]  # noqa: RUF012 - Django's own shape

    def get(self, request: HttpRequest, key: str) -> JsonResponse:
        """Return the state of the operation."""
        return JsonResponse(look_up(request, request.user, self.policy, key))


def look_up(request: HttpRequest, user: Any, policy: Policy, sent: str) -> dict[str, Any]:
    """Return what is known of the caller's own operation under a key, as JSON can express it.

    `state` is a word of `core.states`; of an `atomic` record the row's lock says whether it is
    abandoned. Of a response there is its status only: no check that stands before its view is
    repeated here.

    Raises `KeyUnknown`, `ScopeRequired`, `StoreUnavailable`, or what is wrong with the key.
    """
    terms = conf.resolve(policy)
    speak(request, terms.profile)
    key, scope = _key_and_scope(request, user, terms, sent)
    refer_to(request, record_id(scope, key))
    store = store_of(terms)
    record = store.get(record_id(scope, key))
    if record is None or rules.expired(record):
        raise KeyUnknown
    found: dict[str, Any] = {"key": key, "state": _state(store, record), "attempt": record.attempt}
    response = response_of(record)
    if response is not None and response not in (*CANCELLATIONS, HELD):
        found["response"] = {"status": response.status}
    return found


def _key_and_scope(request: HttpRequest, user: Any, terms: Resolved, sent: str) -> tuple[str, str]:
    profile = terms.profile
    key: str = formatted_behind_client(_named_key(sent, profile), terms)
    scope = scope_of(request, user, terms, key)
    if scope is None:
        raise ScopeRequired
    if profile.keys_per == "endpoint":
        path = request.GET.get("path")
        if path is None:
            raise KeyMalformed(
                "Each endpoint has keys of its own: add the path, as in ?path=/charges"
            )
        key = of_endpoint(key, escape_uri_path(path))
    return key, scope


def _named_key(text: str, profile: Dialect) -> str:
    """Return the key that an address names, as the client spells it, or without its quotes.

    It is read as if the client sent it now. Raises `KeyMalformed`.
    """
    meta: dict[str, str] = {}
    if profile.client_field is not None:
        client, _, text = text.rpartition(" ")
        if client:
            meta[conf.meta_name(profile.client_field)] = client
    if profile.first_sent_field is not None:
        meta[conf.meta_name(profile.first_sent_field)] = http_date()
    if profile.spelling == "quoted" and not text.startswith('"'):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    key = profile.read_key(text, meta)
    assert key is not None, "it is named"
    return key


def _state(store: BaseStore, record: Record) -> str:
    state = state_of(record)
    if record.status is not Status.COMPLETED:
        if rules.leased(record) or (
            record.guarantee is Guarantee.ATOMIC and _is_locked(store, record)
        ):
            state = RecordState.RUNNING
        elif record.status is Status.RUNNING:
            state = RecordState.ABANDONED
    return str(state.value)


def _is_locked(store: BaseStore, record: Record) -> bool:
    """Does an owner hold the row of an `atomic` record?

    Its lease only covers the way to that lock.
    """
    ticket = record.ticket(owner=uuid4())._replace(guarantee=Guarantee.ATOMIC)
    try:
        with store.guard(ticket, takeover=True) as guard:
            guard.set_rollback()
            return guard.record is None
    except LostRace:  # on SQLite the lock is not given
        return True
