"""Links to other pages of the admin: of an object, and of the users behind the scopes of a page, by
one query.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..scopes import user_of


def people(scopes: Iterable[str], request: HttpRequest, site: AdminSite) -> dict[str, SafeString]:
    """Return the name of the user behind each scope that names one, linked to the page where the
    viewer may see them.
    """
    model: Any = get_user_model()
    keys = {scope: key for scope in scopes if (key := key_of(scope, model)) is not None}
    if not keys:
        return {}
    # Documented.
    found = {user.pk: user for user in model._default_manager.filter(pk__in=set(keys.values()))}  # noqa: SLF001
    return {scope: named(found[key], request, site) for scope, key in keys.items() if key in found}


def key_of(scope: str, model: Any) -> Any:
    """Return the primary key in a scope of a user of the default database; `None`: it names none,
    or none that can be.
    """
    named = user_of(scope)
    if named is None or named[0] != model._meta.label_lower:
        return None
    try:
        return model._meta.pk.get_prep_value(model._meta.pk.clean(named[1], None))
    except (ValidationError, ValueError, TypeError, OverflowError):
        return None


def named(user: Any, request: HttpRequest, site: AdminSite) -> SafeString:
    """Return a user's name, as a link if the viewer may open their page."""
    return linked(user.get_username(), change_url(site, type(user), user.pk, request))


def linked(shown: Any, url: str) -> SafeString:
    """Return a link; without a URL what is shown."""
    return format_html('<a href="{}">{}</a>', url, shown) if url else format_html("{}", shown)


def change_url(
    site: AdminSite, model: type[Model], pk: Any, request: HttpRequest | None = None
) -> str:
    """Return the address of an object's page; "": there is none, or none that the viewer of a
    request may open.
    """
    page = site._registry.get(model)  # noqa: SLF001 - is_registered() names no admin
    if page is None or not (request is None or page.has_view_permission(request)):
        return ""
    with suppress(NoReverseMatch):
        return reverse(
            f"{site.name}:{model._meta.app_label}_{model._meta.model_name}_change", args=[quote(pk)]
        )
    return ""
