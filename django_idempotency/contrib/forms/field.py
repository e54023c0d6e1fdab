"""The hidden field of a form that holds its key.

Each page that shows the form has a key of its own.
"""

from __future__ import annotations

import logging

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.middleware.csrf import get_token
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ... import Policy
from ...api import Resolved
from ...api.requests import own_policy, resolve_policy
from ...errors import KeyNotIssued, ScopeRequired
from ..limits.issued_keys import Destination, issue_on, named, policy_at
from .decorator import OF_FORMS

logger = logging.getLogger("django_idempotency")

_METHOD = "POST"
_FIELD = '<input type="hidden" name="{}" value="{}" autocomplete="off" data-idempotency="{}">'


def idempotency_field(request: HttpRequest, path: str | None = None) -> SafeString:
    """Return the hidden field with a new key for the person who gets this page; "" if it is unknown
    who that is.

    With a `path` the key is for that address only, on the terms of the view there; otherwise on
    those of the view that shows the page. Raises `ImproperlyConfigured` for a path or a policy that
    takes no such key.
    """
    try:
        destination = None if path is None else named(_METHOD, path)
        terms = _terms(request, destination)
        # The page is one person's: it varies by cookie, and no cache gives it to another.
        get_token(request)
        issued = issue_on(terms, request, getattr(request, "user", None), destination)
    except KeyNotIssued as error:
        raise ImproperlyConfigured(f"idempotency_field: {error} It got path={path!r}.") from error
    except ScopeRequired:
        logger.warning(
            "A form on %s has no idempotency key: it is unknown whose it would be. Show it "
            "to people who are logged in, or "
            'type @idempotent_form(anonymous="shared").',
            request.path,
        )
        return SafeString("")
    return format_html(_FIELD, terms.profile.field, issued.key, _address())


def _terms(request: HttpRequest, destination: Destination | None) -> Resolved:
    """Return the terms of the view that gets the form, if it looks for its key there; if it is
    unknown, of `@idempotent_form`.
    """
    if destination is not None:
        policy = policy_at(destination, Policy(), getattr(request, "urlconf", None))
    else:
        callback = getattr(request.resolver_match, "func", None)
        policy = own_policy(callback, _METHOD) or Policy()
    terms = resolve_policy(policy)
    if terms.profile.carrier != "body":
        if destination is not None:
            raise ImproperlyConfigured(
                f"idempotency_field: the view at {destination.path} takes no key from a "
                "form. Put @idempotent_form on it."
            )
        terms = resolve_policy(OF_FORMS)
    if terms.key_format not in ("any", "issued"):
        raise ImproperlyConfigured(
            "idempotency_field: its keys are issued by the server, so type "
            'key_format="issued" in the policy of the view.'
        )
    return terms


def _address() -> str:
    """Return where the script asks for another key; "" if the project has not routed it."""
    try:
        return reverse("idempotency-tokens")
    except (
        NoReverseMatch,
        ValueError,
    ):  # not routed; or any of the project's patterns cannot be reversed
        return ""
