"""The decorator `@idempotent_tool_calls()`: for views that take MCP's JSON-RPC over HTTP.

It is made of a policy's hooks: the key, the fingerprint and the replay are those of a `tools/call`,
not of its HTTP request.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, NamedTuple

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from ... import OnReplay, Policy, conf
from ...api import Default, Dialect, Guarantee
from ...core.canonical import TooDeep, canonical_bytes
from ...core.conclusions import WorkResult
from ...core.expressions.functions import Unpackable, from_json
from ...core.statuses import HeaderStatus
from ...decorators import idempotent
from ...errors import BodyIncomplete, Problem
from ...http.bodies import receive
from ...http.exchange import noted
from ...http.responses import StoredResponse
from .refusals import refusal
from .sdk import META_KEY, REPLAYED, well_formed

logger = logging.getLogger("django_idempotency")
#: Reads the key of a header.
DEFAULT = Default()

METHOD = "tools/call"
#: Asks which tools there are.
LIST = "tools/list"
#: What of a call's parameters may differ in a retry: besides its metadata, what answers a question
#: of the server.
NOT_COMPARED = frozenset({"_meta", "inputResponses", "requestState"})
#: A response may be a stream of server-sent events, each on one line here.
_EVENTS = "text/event-stream"
_EVENT = re.compile(rb"^data: ?(.*?)\r?$", re.MULTILINE)
#: Codes of JSON-RPC.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600


class ToolCall(NamedTuple):
    """A `tools/call`: `request.tool_call`."""

    id: str | int | None
    params: Mapping[str, Any]
    #: Its key, as it was sent in the message, and in the header; `None`: it was not.
    key: Any
    header: Any


class Refused(Exception):
    """A message that would pass by the guard: a JSON-RPC error (JSON-RPC 2.0 section 5.1)."""

    def __init__(self, code: int, message: str, data: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        self.envelope = {"jsonrpc": "2.0", "id": None, "error": error}


def has_call(
    request: HttpRequest,
    tools: Collection[str] | None,
    argument: str | None,
    methods: Collection[str],
) -> bool:
    """Is it a call of one of these tools? Then it has that as its `tool_call`. Raises `Refused`.

    A call by a method that the policy does not guard is refused, since the view might carry it out.
    The header is taken away: it would be one key of all tools, and come before that of the message.
    """
    try:
        receive(request)
    except BodyIncomplete as problem:
        data = {"code": problem.code, "retry": problem.retry}
        raise Refused(PARSE_ERROR, problem.detail, data) from None
    is_post = request.method == "POST"
    try:
        message = from_json(request.body)
    except Unpackable:
        if not is_post:  # such as the end of a session
            return False
        raise Refused(PARSE_ERROR, "This is not JSON.") from None
    # MCP 2025-06-18 has removed batches.
    if isinstance(message, list) and any(_is_call(each) for each in message):
        raise Refused(
            INVALID_REQUEST, "A batch may not call tools. Send each call as a request of its own."
        )
    is_call = _is_call(message)
    request.lists_tools = _lists(message)  # type: ignore[attr-defined]
    header = None
    if is_post or is_call:
        names = dict.fromkeys((conf.get("HEADER"), Mcp.field))
        sent = [request.META.pop(conf.meta_name(name), None) for name in names]
        header = next((each for each in sent if each is not None), None)
    if not is_call:
        return False
    params = _member(message, "params")
    if tools is not None and params.get("name") not in list(tools):
        return False
    if request.method not in {name.upper() for name in methods}:
        raise Refused(INVALID_REQUEST, "A call of a tool takes another method. Send it by POST.")
    key = _member(params, "_meta").get(META_KEY)
    if key is None and argument is not None:
        key = _member(params, "arguments").get(argument)
    named = message.get("id")
    request.tool_call = ToolCall(  # type: ignore[attr-defined]
        named if isinstance(named, (str, int)) else None, params, key, header
    )
    return True


def _is_call(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("method") == METHOD


def _lists(message: Any) -> bool:
    """Does it ask for all tools at once?"""
    return (
        isinstance(message, Mapping)
        and message.get("method") == LIST
        and _member(message, "params").get("cursor") is None
    )


def _member(params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = params.get(name)
    return found if isinstance(found, Mapping) else {}


# -------------------------------------------------------------------------- the hooks of its policy


def call_key(request: Any) -> list[str] | None:
    """Return what makes the key: two tools share none. Raises `KeyMalformed`."""
    call: ToolCall = request.tool_call
    if call.key is None and call.header is None:
        return None
    key = DEFAULT.read_key(call.header, {}) if call.key is None else well_formed(call.key)
    return [str(call.params.get("name")), str(key)]


def call_digest(request: Any) -> bytes:
    """Return what must stay the same for a key: all parameters but `NOT_COMPARED`."""
    call: ToolCall = request.tool_call
    compared = {name: value for name, value in call.params.items() if name not in NOT_COMPARED}
    try:
        return canonical_bytes(compared)
    except TooDeep:
        return spelled_out(compared)


def spelled_out(value: Any) -> bytes:
    """Return JSON that is nested however deep as bytes, which are equal if the values are: no call
    calls itself.
    """
    parts: list[str] = []
    left = [value]
    while left:
        each = left.pop()
        match each:
            case (text,) if isinstance(each, tuple):  # what follows a member; JSON has no tuples
                parts.append(text)
            case dict():
                parts.append("{")
                left.append(("}",))
                for name in sorted(each, reverse=True):
                    left += [each[name], (f"{json.dumps(name)}:",)]
            case list():
                parts.append("[")
                left.append(("]",))
                for item in reversed(each):
                    left += [(",",), item]
            case Decimal():
                parts.append(f"{each};")
            case _:
                parts.append(f"{json.dumps(each)};")
    return "".join(parts).encode()


def is_kept(response: Any, *, atomic: bool) -> bool | WorkResult | None:
    """Is a response kept?

    Not a question to the client: the call goes on with the answer, under its key.

    Nor a failure whose writes are rolled back. Under a lease nothing is, and what has been done is
    not done again.
    """
    envelope = _envelope(response)
    result = _member(envelope, "result")
    if result.get("resultType") == "input_required":
        return False
    fails = isinstance(envelope.get("error"), Mapping) or result.get("isError") is True
    return WorkResult.FAILED if fails and atomic else None


def renamed(request: HttpRequest, response: Any) -> Any:
    """Return a replay under the id of the call that it answers now, marked as a replay."""
    if envelope := _envelope(response):
        call: ToolCall = request.tool_call  # type: ignore[attr-defined]
        envelope["id"] = call.id
        if isinstance(result := envelope.get("result"), dict):
            result["_meta"] = {**_member(result, "_meta"), REPLAYED: True}
        before, _, after = _parts(response)
        response.content = b"".join((before, json.dumps(envelope).encode(), after))
    return response


def _envelope(response: Any) -> dict[str, Any]:
    """Return the JSON-RPC response in the body of an HTTP one; {}: there is none."""
    try:
        found = {} if response.streaming else json.loads(_parts(response)[1])
    except (
        ValueError,
        RecursionError,
    ):  # the work is done: what is nested too deep to be read is kept as it is
        return {}
    return found if isinstance(found, dict) else {}


def _parts(response: Any) -> tuple[bytes, bytes, bytes]:
    """Return what stands before the JSON of a response, the JSON, and what follows: a stream of
    events ends with it.
    """
    events = (
        list(_EVENT.finditer(response.content))
        if response.get("Content-Type", "").startswith(_EVENTS)
        else []
    )
    begins, ends = events[-1].span(1) if events else (0, len(response.content))
    return response.content[:begins], response.content[begins:ends], response.content[ends:]


class Mcp(Dialect):
    """Speaks as clients of MCP expect it."""

    error_type = "application/json"

    def error_body(self, problem: Problem, status: int, request: Any) -> dict[str, Any]:
        """Return the JSON-RPC response with the result of the tool."""
        call: ToolCall | None = getattr(request, "tool_call", None)
        number = None if call is None else call.id
        return {"jsonrpc": "2.0", "id": number, "result": refusal(problem)}


def with_status(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Return a response; a problem with status 200, since clients read no result of an HTTP
    error.
    """
    if isinstance(response, StoredResponse) and noted(request) is not HeaderStatus.REPLAYED:
        response.status_code = 200
    return response


class Named:
    """The tools that a decorator names, until a list of the server's tools has shown that each is
    there.
    """

    def __init__(self, tools: Any) -> None:
        if tools is None:
            self._unseen = frozenset[str]()
            return
        if (
            isinstance(tools, str)
            or not tools
            or not all(isinstance(each, str) and each for each in tools)
        ):
            raise ImproperlyConfigured(
                f"@idempotent_tool_calls(tools={tools!r}) guards nothing: type a list of "
                "the names of tools, such as "
                'tools=["charge"], or leave tools out to guard all of them.'
            )
        self._unseen = frozenset[str](tools)

    def compare(self, request: HttpRequest, response: Any) -> None:
        """Log an error for each named tool that a list of the server's tools does not have: its
        calls pass unguarded.
        """
        if not self._unseen or not getattr(request, "lists_tools", False):
            return
        result = _member(_envelope(response), "result")
        listed = result.get("tools")
        if not isinstance(listed, list) or result.get("nextCursor") is not None:
            return
        there = [
            each["name"]
            for each in listed
            if isinstance(each, Mapping) and isinstance(each.get("name"), str)
        ]
        for name in sorted(self._unseen.difference(there)):
            close = get_close_matches(name, there, n=1, cutoff=0.6)
            logger.error(
                "@idempotent_tool_calls(tools=…) names %r, and the server lists no such "
                "tool: it guards nothing.%s",
                name,
                f" Did you mean {close[0]!r}?" if close else "",
                extra={"idempotency": {"event": "unknown_tool", "tool": name}},
            )
        self._unseen = frozenset[str]()  # it is said once


# ------------------------------------------------------------------------------------ the decorator


def idempotent_tool_calls(
    *, tools: Collection[str] | None = None, argument: str | None = None, **fields: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the `tools/call` requests of a view safe to retry.

    It goes below what authenticates the client.

    The key is `params._meta["idempotency-key"]`, or the argument of the tool that is named by
    `argument`, or the header. Whatever else the view takes passes, and so do calls of other tools
    than `tools`, if that is given; a batch with a call is refused, and so is a call by a method
    that `methods` does not name. A problem is the result of the tool, with `isError` and what to do
    (`retry`), and status 200. A replay has the id of its own request. Under `atomic` a result with
    `isError`, or a JSON-RPC error, is a failure, as a 5xx is: its writes are rolled back, and the
    key is free for the same call. Under `lease` it is stored as any other. `fields` are those of
    `Policy`, such as `required`, `scope` and `guarantee`. One of `tools` that is not in the
    server's own list of them is an ERROR in the log, when a client asks for that list.

    Takes a function, or what REST framework's `as_view()` returns. Raises what `idempotent()`
    raises.
    """
    named = Named(tools)

    def decorate(view: Any) -> Any:
        if inspect.isclass(view):
            raise ImproperlyConfigured(
                f"@idempotent_tool_calls() takes {view.__name__}.as_view(), not the class."
            )
        policy = Policy(**fields)

        def kept(response: Any) -> bool | WorkResult | None:
            return is_kept(response, atomic=conf.field(policy, "guarantee") == Guarantee.ATOMIC)

        hooks = {"key": call_key, "fingerprint": call_digest, "keep": kept}
        terms = {**fields, "extensions": [*fields.get("extensions", ()), OnReplay(renamed)]}
        guarded: Callable[..., Any] = idempotent(**hooks, **terms, profile=Mcp)(view)
        # A call that has a key, and nobody whose it is, is refused.
        keyed: Callable[..., Any] = idempotent(**{**hooks, **terms, "required": True}, profile=Mcp)(
            view
        )
        # What passes has no guard, but the transactions of ATOMIC_REQUESTS.
        same = {name: fields[name] for name in ("guarantee", "store") if name in fields}
        bare: Callable[..., Any] = idempotent(key=None, required=False, profile=Mcp, **same)(view)

        def begin(request: HttpRequest, *given: Any, **more: Any) -> Any:
            """Return the response to a request, or what is awaited for it."""
            call: Any = (
                request.tool_call  # type: ignore[attr-defined]
                if has_call(request, tools, argument, conf.field(policy, "methods"))
                else None
            )
            has_key = call is not None and (call.key is not None or call.header is not None)
            return (bare if call is None else keyed if has_key else guarded)(
                request, *given, **more
            )

        @functools.wraps(guarded)
        def calls(request: HttpRequest, *given: Any, **more: Any) -> Any:
            try:
                response = begin(request, *given, **more)
            except Refused as refused:
                return JsonResponse(refused.envelope, status=400)
            named.compare(request, response)
            return with_status(request, response)

        @functools.wraps(guarded)
        async def acalls(request: HttpRequest, *given: Any, **more: Any) -> Any:
            try:
                response = await begin(request, *given, **more)
            except Refused as refused:
                return JsonResponse(refused.envelope, status=400)
            named.compare(request, response)
            return with_status(request, response)

        return markcoroutinefunction(acalls) if iscoroutinefunction(guarded) else calls

    return decorate
