"""The hidden field of a form that holds its key.

Each page that shows the form has a key of its own. A page that shows a form again because it was not valid says so to the
guard, so that the key of the refused one is free again: the person may go back, correct the form there and send it. What
else the page shows may have succeeded, so that it says so only if all its forms were refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.forms import BaseForm, BaseFormSet
from django.http import HttpRequest
from django.middleware.csrf import get_token
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from .. import conf
from ..core.key_formats import ANY, ISSUED
from ..core.policy import Policy, Resolved
from ..decorators import FORM_FIELDS
from ..errors import KeyNotIssued, ScopeRequired
from ..http.handle import RequestIdempotency
from ..http.issuing import Destination, issue_on, named, policy_at
from ..http.markers import guards_itself, own_policy
from ..http.terms import resolve_policy

logger = logging.getLogger("django_idempotency")

_METHOD = "POST"


def idempotency_field(request: HttpRequest, path: str | None = None) -> SafeString:
    """Return the hidden field with a new key for the person who gets this page; "" if it is unknown who that is.

    With a `path` the key is for that address only, on the terms of the view there; otherwise on those of the view that
    shows the page. Raises `ImproperlyConfigured` for a path or a policy that takes no such key.
    """
    try:
        destination = None if path is None else named(_METHOD, path)
        terms = _terms(request, destination)
        get_token(request)  # the page is one person's: it varies by cookie, and no cache gives it to another
        issued = issue_on(terms, request, getattr(request, "user", None), destination)
    except KeyNotIssued as error:
        raise ImproperlyConfigured(f"idempotency_field: {error} It got path={path!r}.") from error
    except ScopeRequired:
        logger.warning(
            "A form on %s has no idempotency key: it is unknown whose it would be. Show it to people who are logged in, or "
            'type @idempotent_form(anonymous="shared").',
            request.path,
        )
        return SafeString("")
    return format_html(
        '<input type="hidden" name="{}" value="{}" autocomplete="off" data-idempotency="{}">',
        terms.profile.field,
        issued.key,
        _address(),
    )


def note_refusal(request: HttpRequest, shown: Iterable[Any]) -> None:
    """Free the key of a guarded request whose page shows nothing but refused forms, as the first tag of the page finds them.

    A key that is freed after the work was done makes it done twice, one that is kept only repeats this page: any doubt
    keeps it. Starts no validation. The view's own `keep()` or `drop()` goes before that.
    """
    handle = getattr(request, "idempotency", None)
    if not handle or not isinstance(handle, RequestIdempotency) or handle._ending is not None or handle._weighed:  # noqa: SLF001
        return
    handle._weighed = True  # noqa: SLF001 - what follows this tag renders forms, and so validates them
    forms = [value for value in shown if isinstance(value, (BaseForm, BaseFormSet)) and value.data is not request.GET]
    if forms and all(_was_refused(form, request) for form in forms):
        handle.drop()


def _was_refused(form: BaseForm | BaseFormSet[Any], request: HttpRequest) -> bool:
    """Is it a form of this request's fields that the view has validated, and found invalid?

    Of a formset that cannot be known: the view may have carried out the valid ones of its forms.
    """
    validated = isinstance(form, BaseForm) and hasattr(form, "cleaned_data")
    return validated and form.data == request.POST and not form.is_valid()


def _terms(request: HttpRequest, destination: Destination | None) -> Resolved:
    """Return the terms of the view that gets the form, if it looks for its key there; if it is unknown, of `@idempotent_form`."""
    if destination is not None:
        policy = policy_at(destination, Policy(), getattr(request, "urlconf", None))
    else:
        callback = getattr(request.resolver_match, "func", None)
        policy = (own_policy(callback, _METHOD) if guards_itself(callback, _METHOD) else None) or Policy()
    if conf.profile_of(policy.profile, conf.project_settings()).carrier != "body":
        if destination is not None:
            raise ImproperlyConfigured(
                f"idempotency_field: the view at {destination.path} takes no key from a form. Put @idempotent_form on it."
            )
        policy = Policy(**FORM_FIELDS)
    terms = resolve_policy(policy)
    if terms.key_format not in (ANY, ISSUED):
        raise ImproperlyConfigured(
            'idempotency_field: its keys are issued by the server, so type key_format="issued" in the policy of the view.'
        )
    return terms


def _address() -> str:
    """Return where the script asks for another key; "" if the project has not routed it."""
    try:
        return reverse("idempotency-tokens")
    except (NoReverseMatch, ValueError):  # not routed; or any of the project's patterns cannot be reversed
        return ""
