"""Check for guarded views with a durable block, which an atomic guard around it would break."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.db import DEFAULT_DB_ALIAS

from .. import conf
from ..core.records import Guarantee
from ..http.markers import below_api_view, handler_of
from ..http.ninja_views import operation_of
from .catalogue import finding
from .guards import guards_of, methods_of
from .settings import check_settings
from .sources import may_mention, tree_of
from .stores import built
from .urlconf import Route, name_of, routes


def check_durable(**_: Any) -> list[CheckMessage]:
    """Find the views whose own source has `atomic(durable=True)` on the database of their records.

    What they call is not read. A decorator above one that is named `idempotent` begins before the guard.
    """
    if check_settings():
        return []
    found: dict[tuple[str, str], str] = {}
    for route in routes():
        for name in _broken(route):
            found.setdefault((name, name_of(route.callback)), route.path)
    return [finding("W134", view=f"{name} ({path})") for (name, _), path in found.items()]


def _broken(route: Route) -> Iterator[str]:
    """Name the functions of a route that have such a block."""
    mentioning = {method: _mentioning(route.callback, method) for method in methods_of(route.callback)}
    if not any(mentioning.values()):  # as nearly always: then nobody needs to know what guards it
        return
    for method, policy in guards_of(route):
        function = mentioning[method]
        if function is None or policy is None or conf.field(policy, "guarantee") != Guarantee.ATOMIC:
            continue
        store, tree = built(conf.field(policy, "store")), tree_of(function)
        if store is not None and tree is not None and _has_block(tree, store.using):
            yield f"{function.__module__}.{function.__qualname__}"


def _mentioning(callback: Any, method: str) -> Any:
    """Return the function that handles a method, if its file has the word; `None` if it has not, or cannot be found."""
    try:
        function = inspect.unwrap(_function(callback, method))
    except Exception:  # noqa: BLE001 - a view that cannot be looked through is unknown, and passes
        return None
    return function if may_mention(function, "durable") else None


def _function(callback: Any, method: str) -> Any:
    if (operation := operation_of(callback, method)) is not None:
        return operation.view_func
    handler = handler_of(callback, method)
    return below_api_view(handler) or handler or callback


def _has_block(tree: ast.Module, using: str | None) -> bool:
    nodes = list(ast.walk(tree))
    function = next((node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), None)
    above = set(_above_ours(function.decorator_list)) if function is not None else set()
    return any(isinstance(node, ast.Call) and node not in above and _is_durable(node, using) for node in nodes)


def _above_ours(decorators: list[ast.expr]) -> Iterator[ast.AST]:
    names = [{_name(node) for node in ast.walk(each)} for each in decorators]
    ours = max((at for at, found in enumerate(names) if "idempotent" in found), default=0)
    for each in decorators[:ours]:
        yield from ast.walk(each)


def _is_durable(call: ast.Call, using: str | None) -> bool:
    """Is it `atomic(durable=True)` on this database? One that is not named by a constant is unknown, and passes."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    durable, alias = named.get("durable"), named.get("using", call.args[0] if call.args else ast.Constant(None))
    if _name(call.func) != "atomic" or not (isinstance(durable, ast.Constant) and durable.value is True):
        return False
    return isinstance(alias, ast.Constant) and (alias.value or DEFAULT_DB_ALIAS) == using


def _name(node: ast.AST) -> str | None:
    """Return the name of a variable or an attribute."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
