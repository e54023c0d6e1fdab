"""An answer as it is remembered, and as it is given again."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl

from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch

from ..core import rules
from ..core.policy import Policy
from ..core.records import MISSING, Missing, Outcome
from ..core.rules import Ending
from ..errors import ResponseNotStored

REPLAYED = "Idempotency-Replayed"
DEGRADED = "Idempotency-Degraded"

_ORIGIN = re.compile(r"\Ahttps?://[^/]*")

#: Never stored: they belong to one connection (RFC 9110 section 7.6.1), one moment or one client.
UNSAFE_HEADERS = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
        *("date", "content-length", "server", "server-timing", REPLAYED.lower(), DEGRADED.lower()),
        *("set-cookie", "set-cookie2", "authorization", "proxy-authorization", "authentication-info"),
        *("www-authenticate", "proxy-authenticate", "x-csrftoken", "x-csrf-token", "x-xsrf-token"),
    }
)


def ending_of(request: HttpRequest, response: HttpResponseBase, policy: Policy) -> Ending:
    """Say of which kind an answer is. A redirect to a login page is a refusal, like 401."""
    keep = policy.keep
    if callable(keep):
        wanted = keep(response)
        if wanted is not None and response.status_code < 500:
            return Ending.KEPT if wanted else Ending.DROPPED
        keep = None
    ended = rules.ending(response.status_code, keep)
    return Ending.DROPPED if ended is Ending.KEPT and _asks_to_log_in(request, response) else ended


def _asks_to_log_in(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Does it go to LOGIN_URL, or is it to come back to this very address next, as Django's access decorators say?"""
    if response.status_code not in (302, 303, 307):
        return False
    address, _, query = response.headers.get("Location", "").partition("?")
    if address and address == _login_address():
        return True
    here = request.get_full_path()
    return any(name == REDIRECT_FIELD_NAME and _ORIGIN.sub("", value) == here for name, value in parse_qsl(query))


def _login_address() -> str:
    try:
        return resolve_url(settings.LOGIN_URL).partition("?")[0]
    except NoReverseMatch:  # a name that this URLconf does not have
        return ""


def capture(response: HttpResponseBase, policy: Policy) -> Outcome:
    """Return what is remembered of an answer. A body that is not kept is `MISSING`: the work counts as done."""
    body: bytes | Missing = MISSING
    if "no-store" not in response.headers.get("Cache-Control", "").lower():
        body = _stream(response, policy) if response.streaming else _content(response)
    if body is not MISSING and len(body) > policy.max_body:
        body = MISSING
    headers = tuple((name, value) for name, value in response.items() if _kept(name.lower(), policy))
    return Outcome(status=response.status_code, headers=headers, body=body)


def _content(response: Any) -> bytes:
    content: bytes = response.content
    return content


def _kept(name: str, policy: Policy) -> bool:
    if name in UNSAFE_HEADERS or name == settings.CSRF_HEADER_NAME.removeprefix("HTTP_").replace("_", "-").lower():
        return False
    if policy.headers is None or name == "content-type":
        return True
    if callable(policy.headers):
        return policy.headers(name)
    return name in {kept.lower() for kept in policy.headers}


def _stream(response: Any, policy: Policy) -> bytes | Missing:
    """Buffer a file of known, small length, or what the policy says; any other stream is not touched."""
    small_file = isinstance(response, FileResponse) and _declared_length(response) <= policy.max_body
    if response.is_async or not (small_file or policy.buffer_stream):
        return MISSING
    chunks = iter(response.streaming_content)
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) > policy.max_body:
            response.streaming_content = chain([head], chunks)
            return MISSING
    response.streaming_content = [head]
    return head


def _declared_length(response: StreamingHttpResponse) -> float:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else float("inf")


def rebuild(outcome: Outcome) -> HttpResponse:
    """Return the remembered answer, marked as a replay. Raises `ResponseNotStored` when its body was not kept.

    Built by HttpResponse, which refuses line breaks in headers.
    """
    if outcome.body is MISSING:
        location = {name: value for name, value in outcome.headers if name.lower() == "location"}
        raise ResponseNotStored(
            headers={**location, "Stripe-Should-Retry": "false"}, extensions={"original_status": outcome.status}
        )
    response = HttpResponse(outcome.body, status=outcome.status)
    del response["Content-Type"]
    for name, value in outcome.headers:
        response[name] = value
    response[REPLAYED] = "true"
    return response


def render(response: HttpResponseBase) -> None:
    """Render a template or DRF response that is not rendered yet."""
    if not getattr(response, "is_rendered", True):
        response.render()  # type: ignore[attr-defined]
