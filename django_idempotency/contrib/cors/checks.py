"""Check of django-cors-headers, which hides from browsers what it is not told about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage

from ... import conf
from ...checks.settings import after_settings
from ...core.records import MISSING
from ...stores.check_messages import Finding
from . import ALLOW_HEADERS, EXPOSE_HEADERS

APP = "corsheaders"


class W086(Finding):
    """INSTALLED_APPS has corsheaders, and %(setting)s lacks %(missing)s: %(effect)s.

    Type %(fix)s. If no browser of another origin sends keys, type %(silence)s.
    """


@after_settings
def check_cors(**_: Any) -> Iterator[CheckMessage]:
    """Check what browsers of other origins may send and read, if django-cors-headers is
    installed.
    """
    if not apps.is_installed(APP):
        return
    profile = conf.profile_of(MISSING, conf.project_settings())
    sent = (
        profile.field if profile.carrier == "header" else None,
        profile.first_sent_field,
        profile.client_field,
    )
    needed = [name.lower() for name in sent if name is not None]
    imported = (
        "from django_idempotency.contrib.cors import ALLOW_HEADERS; "
        if set(needed) & set(ALLOW_HEADERS)
        else ""
    )
    shown = [
        name for name in (profile.marker, profile.original, profile.result) if name is not None
    ]
    kept = ["…"] if getattr(settings, "CORS_EXPOSE_HEADERS", ()) else []
    allowed = "…"
    defaults = ""
    if not getattr(settings, "CORS_ALLOW_HEADERS", ()):  # then it has those of the app
        allowed = "*default_headers"
        defaults = "from corsheaders.defaults import default_headers; "
    typed = ", ".join([allowed, *_spelled(needed, ALLOW_HEADERS, "ALLOW_HEADERS")])
    yield from _lacks(
        "CORS_ALLOW_HEADERS",
        needed,
        effect="the preflight of a request with a key fails, so the request is never sent",
        fix=f"{defaults}{imported}CORS_ALLOW_HEADERS = ({typed})",
    )
    typed = ", ".join(
        [*_spelled([*EXPOSE_HEADERS, *shown], EXPOSE_HEADERS, "EXPOSE_HEADERS"), *kept]
    )
    yield from _lacks(
        "CORS_EXPOSE_HEADERS",
        list(dict.fromkeys([*EXPOSE_HEADERS, *shown])),
        effect="no script of another origin can read that",
        fix="from django_idempotency.contrib.cors import EXPOSE_HEADERS; CORS_EXPOSE_HEADERS "
        f"= [{typed}]",
    )


def _spelled(needed: Iterable[str], ours: tuple[str, ...], name: str) -> list[str]:
    """Write names as Python: our tuple for those in it, and the others one by one."""
    others = [f'"{each}"' for each in needed if each not in ours]
    return [f"*{name}", *others] if set(needed) & set(ours) else others


def _lacks(setting: str, needed: Iterable[str], *, effect: str, fix: str) -> Iterator[CheckMessage]:
    """Find names that a setting lacks. They compare in any case.

    A wildcard includes all, but not where credentials are allowed: browsers take it literally there
    (the Fetch standard).
    """
    names = {str(name).lower() for name in getattr(settings, setting, ())}
    wildcard = "*" in names and not getattr(settings, "CORS_ALLOW_CREDENTIALS", False)
    missing = [name for name in needed if not wildcard and name.lower() not in names]
    if missing:
        yield W086(setting=setting, missing=", ".join(missing), effect=effect, fix=fix)
