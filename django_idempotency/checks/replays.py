"""Check for views that the middleware cannot replay: the check of a layer before them cannot be repeated."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.core.checks import CheckMessage

from .. import conf
from ..http.following import unfollowed
from ..http.views import route_of
from .catalogue import and_more, finding
from .middleware import guards_every_view
from .settings import check_settings
from .urlconf import name_of, open_handlers, seem_exempt, views


def check_replays(**_: Any) -> list[CheckMessage]:
    """Find the views whose replays are refused, grouped by the layer that causes it."""
    if check_settings() or not guards_every_view() or conf.get("AUTHORIZE_REPLAY") is not None:
        return []
    before: defaultdict[str, list[str]] = defaultdict(list)
    for callback, leading in views():
        if not seem_exempt(leading) and (layer := _unfollowed(callback)) is not None:
            before[layer].append(f"{name_of(callback)} ({leading[0].path})")
    return [_message(layer, found) for layer, found in before.items()]


def _message(layer: str, found: list[str]) -> CheckMessage:
    return finding("W077", view=found[0], others=and_more(found), layer=layer)


def _unfollowed(callback: Any) -> str | None:
    whole = route_of(callback, "")
    if whole.exempt or (whole.kind is not None and whole.kind.left is not None):
        return None  # the middleware leaves them alone
    for name in open_handlers(callback):
        route = route_of(callback, name)
        if not route.guards_itself and not route.exempt:
            layer = unfollowed(callback, name)
            if layer is not None:
                return layer
    return None
