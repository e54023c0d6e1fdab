"""Check for views that the middleware cannot replay: the check of a layer before them cannot be repeated."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.core.checks import CheckMessage

from .. import conf
from ..contrib.graphql.hook import library_view
from ..http.following import unfollowed
from ..http.markers import guards_itself, is_exempt
from ..http.ninja_views import is_ninja
from .catalogue import and_more, finding
from .middleware import guards_every_view
from .settings import check_settings
from .urlconf import class_of, name_of, open_handlers, seem_exempt, views


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
    if is_exempt(callback) or is_ninja(callback) or library_view(class_of(callback)) is not None:
        return None  # the middleware leaves them alone
    for name in open_handlers(callback):
        if not guards_itself(callback, name) and not is_exempt(callback, name):
            layer = unfollowed(callback, name)
            if layer is not None:
                return layer
    return None
