"""The app, and the kind of its views."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...api.requests import EXEMPT, ViewKind
from .. import optional_app


class Allauth(ViewKind):
    """Exempts views of allauth, whose responses hold session tokens or the state of one session, as
    if `@idempotency_exempt` were on each.
    """

    packages = ("allauth",)
    left = replace(EXEMPT, sentence="it is a view of allauth")

    def owns(self, view: Any) -> bool:
        """Is it from a module of allauth, or does its class inherit from one that is?"""
        return any(
            str(getattr(base, "__module__", "")).startswith("allauth.")
            for base in getattr(view, "__mro__", (view,))
        )


class AllauthConfig(optional_app.OptionalApp):
    """Views of django-allauth, which need no guard. It adds no table."""

    name = "django_idempotency.contrib.allauth"
    label = "idempotency_allauth"
    verbose_name = "Idempotency: allauth"
    extends = "apps.Allauth"
