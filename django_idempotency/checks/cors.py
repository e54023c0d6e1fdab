"""Check of django-cors-headers, which hides from browsers what it is not told about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage

from .. import conf
from ..cors import ALLOW_HEADERS, EXPOSE_HEADERS
from .catalogue import finding
from .settings import check_settings

APP = "corsheaders"


def check_cors(**_: Any) -> list[CheckMessage]:
    """Check what browsers of other origins may send and read, if django-cors-headers is installed."""
    if not apps.is_installed(APP) or check_settings():
        return []
    header = conf.get("HEADER").lower()
    imported, named = "", f'"{header}"'
    if header in ALLOW_HEADERS:
        imported, named = "from django_idempotency.cors import ALLOW_HEADERS; ", "*ALLOW_HEADERS"
    exposed = "(*EXPOSE_HEADERS, …)" if getattr(settings, "CORS_EXPOSE_HEADERS", ()) else "EXPOSE_HEADERS"
    return [
        *_lacks(
            "CORS_ALLOW_HEADERS",
            [header],
            effect="the preflight of a request with a key fails, so the request is never sent",
            fix=f"from corsheaders.defaults import default_headers; {imported}CORS_ALLOW_HEADERS = (*default_headers, {named})",
        ),
        *_lacks(
            "CORS_EXPOSE_HEADERS",
            EXPOSE_HEADERS,
            effect="no script of another origin can read that",
            fix=f"from django_idempotency.cors import EXPOSE_HEADERS; CORS_EXPOSE_HEADERS = {exposed}",
        ),
    ]


def _lacks(setting: str, needed: Iterable[str], *, effect: str, fix: str) -> Iterator[CheckMessage]:
    """Find names that a setting lacks. They compare in any case; a wildcard includes all."""
    names = {str(name).lower() for name in getattr(settings, setting, ())}
    missing = [name for name in needed if not {"*", name.lower()} & names]
    if missing:
        yield finding("W086", setting=setting, missing=", ".join(missing), effect=effect, fix=fix)
