"""Views of allauth. Their responses hold session tokens, or the state of one session."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from ...api import EXEMPT, ViewKind


class Allauth(ViewKind):
    """Exempt, as if `@idempotency_exempt` were on each."""

    packages = ("allauth",)
    left = replace(EXEMPT, sentence="it is a view of allauth")

    def owns(self, view: Any) -> bool:
        """Is it from a module of allauth, or does its class inherit from one that is?"""
        bases = view.__mro__ if inspect.isclass(view) else (view,)
        return any(str(getattr(base, "__module__", "")).startswith("allauth.") for base in bases)
