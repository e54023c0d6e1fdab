"""What a guarded tool uses of the SDKs `mcp` (2 and later) and `fastmcp` (4 and later): their
public API, for both alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

from django.core.exceptions import ImproperlyConfigured

from ...errors import KeyMalformed
from ...functions.names import MAX_KEY, validate_key

#: The member of a call's `_meta` that is its key, and the one that marks a replay in the result's.
META_KEY = "idempotency-key"
REPLAYED = "idempotent-replayed"

_SDKS = ("mcp", "fastmcp")
#: Their classes of results that may say that the tool has failed.
_RESULTS = ("CallToolResult", "ToolResult")


def well_formed(sent: Any) -> str:
    """Return a key that a client has sent. Raises `KeyMalformed`."""
    try:
        return validate_key(sent)
    except KeyMalformed:
        raise KeyMalformed(
            f"The idempotency key is malformed. Send 1 to {MAX_KEY} printable ASCII "
            f'characters as _meta["{META_KEY}"], such '
            "as a UUID."
        ) from None


def context_argument(function: Callable[..., Any]) -> tuple[str, str]:
    """Return the name of the argument that is the SDK's `Context`, and which SDK that is.

    Raises `ImproperlyConfigured`.
    """
    name = f"@idempotent_tool() on {getattr(function, '__qualname__', repr(function))}"
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError) as error:
        raise ImproperlyConfigured(
            f"{name}: its annotations cannot be resolved: {error}."
        ) from error
    for argument, hint in hints.items():
        for kind in (hint, *get_args(hint)):
            if argument != "return" and (sdk := _sdk_of(kind)) is not None:
                return argument, sdk
    raise ImproperlyConfigured(
        f"{name}: it takes no Context, which says whose call it is and which key it has. "
        "Type ctx: Context, that of mcp or "
        "fastmcp; no client sees it."
    )


def _sdk_of(kind: Any) -> str | None:
    homes = [base.__module__ for base in getattr(kind, "__mro__", ()) if base.__name__ == "Context"]
    return next((sdk for home in homes if (sdk := home.partition(".")[0]) in _SDKS), None)


def _request_of(context: Any) -> Any:
    """Return the request that a `Context` belongs to; `None` outside of one, as in a test that
    calls the function.
    """
    try:
        return getattr(context, "request_context", None)
    except ValueError:  # mcp's, outside of a request
        return None


def sent_key(context: Any) -> Any:
    """Return what the client has sent as the key in `_meta`; `None`: nothing."""
    meta: Mapping[str, Any] = getattr(_request_of(context), "meta", None) or {}
    return meta.get(META_KEY)


def session(context: Any) -> str | None:
    """Return the id of an HTTP session, before MCP 2026-07-28; `None`: there are no sessions, or
    one client has the server.
    """
    headers: Mapping[str, str] = (
        getattr(getattr(_request_of(context), "request", None), "headers", None) or {}
    )
    return headers.get("mcp-session-id")


def authenticated(context: Any) -> str | None:
    """Name the principal whose access token the SDK has verified: client, issuer, subject; `None`
    without a token.
    """
    if _sdk_of(type(context)) == "fastmcp":
        from fastmcp.server.dependencies import get_access_token
    else:
        from mcp.server.auth.middleware.auth_context import get_access_token  # type: ignore[assignment]
    token = get_access_token()
    return (
        None
        if token is None
        else json.dumps([token.client_id, (token.claims or {}).get("iss"), token.subject])
    )


def asks(result: Any) -> bool:
    """Is a result a question to the client, which calls again with the answer?"""
    from mcp.types import InputRequiredResult

    return isinstance(result, InputRequiredResult)


def fails(result: Any) -> bool:
    """Does a result say that the tool has failed?"""
    return getattr(result, "is_error", None) is True and any(
        cls.__name__ in _RESULTS for cls in type(result).__mro__
    )


def refused(result: Mapping[str, Any]) -> Any:
    """Return the result of a call that met a problem, which both SDKs send as it is."""
    from mcp.types import CallToolResult

    return CallToolResult.model_validate(result)


def converter(function: Callable[..., Any], sdk: str) -> Callable[[Any], Any]:
    """Return what makes the SDK's result of what a tool's function returns, as the SDK itself
    does.
    """
    if sdk == "fastmcp":
        from fastmcp.tools import Tool

        return Tool.from_function(function).convert_result
    from mcp.server.mcpserver.tools import Tool as OfficialTool

    return OfficialTool.from_function(function).fn_metadata.convert_result


def marked(result: Any) -> Any:
    """Return an SDK's result that says it is a replay."""
    return result.model_copy(update={"meta": {**(result.meta or {}), REPLAYED: True}})
