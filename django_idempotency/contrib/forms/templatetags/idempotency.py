"""`{% load idempotency %}`, and in a form `{% idempotency_field %}`."""

from __future__ import annotations

from django import template
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.template.context import Context
from django.utils.safestring import SafeString

from .. import idempotency_field as field

register = template.Library()


@register.simple_tag(takes_context=True)
def idempotency_field(context: Context, path: str | None = None) -> SafeString:
    """Return the hidden field with the key of a form; with a path, such as that of `{% url %}`, for
    that address only.

    Raises `ImproperlyConfigured` in a template that has no request.
    """
    request = context.get("request") or getattr(context, "request", None)
    if not isinstance(request, HttpRequest):
        raise ImproperlyConfigured(
            "{% idempotency_field %} needs the request: render the template with it, as "
            "render(request, …) does, and type no "
            '"only" where it is included.'
        )
    return field(request, path)
