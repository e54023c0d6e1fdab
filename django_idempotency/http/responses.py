"""Stores a response, and rebuilds it for a replay.

The last part is about exceptions that leave a view: Django responds to some below 500. It makes
that response where no view and no decorator sees it, so the headers about its key cannot be set
there. Where nobody but Django would see a raised `Http404`, `answer_to()` finds what was made to be
remembered.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from http.client import responses as standard_reasons
from itertools import chain
from typing import Any, NoReturn

from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.exception import get_exception_response
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.urls import get_resolver, get_urlconf
from django.utils.cache import has_vary_header
from django.utils.encoding import escape_uri_path
from django.utils.functional import cached_property
from django.utils.module_loading import import_string
from django.utils.translation import get_language

from .. import conf
from ..core.conclusions import WorkResult
from ..core.dialects import Default
from ..core.policy import Policy, Resolved
from ..core.records import CANCELLATIONS, HELD, MISSING, REASON, TRACE, UNDONE, Missing, Outcome
from ..core.statuses import HeaderStatus
from ..errors import (
    ConfigurationError,
    OperationCancelled,
    OperationHeld,
    OperationUndone,
    RecordUnreadable,
    ResponseNotStored,
)
from .bodies import is_json
from .exchange import DEGRADED, HEADER, ORIGINAL, REPLAYED, Spoken, noted_of, set_headers

#: Never stored: they belong to one connection (RFC 9110 section 7.6.1), one moment or one client.
UNSAFE_HEADERS = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "date",
        "content-length",
        "server",
        "server-timing",
        REPLAYED.lower(),
        DEGRADED.lower(),
        HEADER.lower(),
        ORIGINAL.lower(),
        "set-cookie",
        "set-cookie2",
        "authorization",
        "proxy-authorization",
        "authentication-info",
        "www-authenticate",
        "proxy-authenticate",
        "x-csrftoken",
        "x-csrf-token",
        "x-xsrf-token",
    }
)


#: Stored only where the policy's `headers` names them: they trace or time one exchange, count
#: against a rate limit, admit one origin, ...
_ONE_EXCHANGE = re.compile(
    r"(x-)?(request|correlation|trace|amzn-trace|amzn-request)-?id|trace(parent|state|response)|baggage|sentry-trace|cf-ray"
    r"|b3|x-b3-.+|x-cloud-trace-context|x-(runtime|response-time|process-time|cache)|age|via|alt-svc"
    r"|(x-)?rate-?limit(-.+)?|access-control-.+"
)
#: ... or hand the client a secret.
_SECRET = re.compile(
    r"(.+[-_])?(access-?key|api-?key|jwt|otp|password|secret|session(-?id)?|token)s?([-_].+)?"
)
#: Official Stripe clients retry a 409 unless this forbids it.
FINAL = {"Stripe-Should-Retry": "false"}

#: They say something of the bytes of a body, which is not true of others.
OF_BYTES = frozenset(
    {
        "etag",
        "content-md5",
        "digest",
        "content-digest",
        "repr-digest",
        "signature",
        "signature-input",
    }
)

_DEFAULT = Spoken(Default())

logger = logging.getLogger("django_idempotency")


def wanted_by(policy: Policy, response: HttpResponseBase) -> bool | WorkResult | None:
    """Return whether the policy's `keep` stores a response; `None`: it does not say."""
    keep = policy.keep
    if callable(keep):
        return keep(response)
    if keep is None or isinstance(keep, str):
        return None
    return True if response.status_code in keep else None


def capture(response: Any, policy: Resolved, limit: int) -> Outcome:
    """Return what is stored of a response.

    A body of more than `limit` bytes is not stored; of `no-store`, only an empty one.

    It is `MISSING` then: the work counts as done.
    """
    if not policy.store_body:
        return Outcome(
            status=response.status_code, headers=tuple(_named(response, policy)), body=MISSING
        )
    limit = 0 if is_private(response) else limit
    body: bytes | Missing = (
        _stream(response, policy, limit) if response.streaming else response.content
    )
    plain = None
    if body is not MISSING and "Content-Encoding" in response.headers:
        plain = _without_coding(response, body, limit)
    if plain is not None:
        body = plain
    if body is not MISSING and len(body) > limit:
        body = MISSING
    ours = policy.profile.own_headers
    keeps = _keeping(policy)
    headers = [
        (name, value)
        for name, value in response.items()
        if (lower := name.lower()) not in ours
        and not (plain is not None and lower == "content-encoding")
        and keeps(lower)
    ]
    # That would set the language of the retry on a replay.
    if "django.middleware.locale.LocaleMiddleware" in settings.MIDDLEWARE and (
        "Content-Language" not in response.headers and keeps("content-language")
    ):
        headers.append(("Content-Language", get_language() or settings.LANGUAGE_CODE))
    if response.reason_phrase != standard_reasons.get(response.status_code, "Unknown Status Code"):
        headers.append((REASON, response.reason_phrase))
    return Outcome(status=response.status_code, headers=tuple(headers), body=body)


def _without_coding(response: HttpResponseBase, body: bytes, limit: int) -> bytes | None:
    """Return the body without a coding that was negotiated with the first client: a replay may have
    another one.

    `None`: it has none, or one that cannot be undone, or it is too long without; then both are
    stored as they are.
    """
    if response.headers.get("Content-Encoding") != "gzip" or not has_vary_header(
        response, "Accept-Encoding"
    ):
        return None
    inflater = zlib.decompressobj(wbits=31)
    with suppress(zlib.error):
        plain = inflater.decompress(body, limit + 1)
        return plain if inflater.eof and not inflater.unused_data and len(plain) <= limit else None
    return None


def _named(response: HttpResponseBase, policy: Resolved) -> Iterator[tuple[str, str]]:
    """Yield the headers that a policy names. Any other, such as Location, may be the secret."""
    wanted = policy.headers
    keeps = _keeping(policy)
    if not callable(wanted):
        wanted = {name.lower() for name in wanted or ()}.__contains__
    for name, value in response.items():
        if wanted(lower := name.lower()) and keeps(lower):
            yield name, value


def is_private(response: HttpResponseBase) -> bool:
    """Does it say that no cache may store it?"""
    return "no-store" in response.headers.get("Cache-Control", "").lower()


def _compile_keeping(policy: Resolved) -> Callable[[str], bool]:
    wanted = policy.headers
    csrf = settings.CSRF_HEADER_NAME
    if wanted is None:
        return partial(_is_of_response, csrf=csrf)
    if callable(wanted):
        return lambda name: (
            name == "content-type" or (_is_of_response(name, csrf=csrf) and wanted(name))
        )
    names = {name.lower() for name in wanted}
    return lambda name: name == "content-type" or (name in names and not _is_unsafe(name, csrf))


#: Returns what says of a header's name, in lower case, whether a policy stores the header.
_keeping = conf.compiled(Resolved, _compile_keeping)


def _is_unsafe(name: str, csrf: str) -> bool:
    return name in UNSAFE_HEADERS or name == csrf.removeprefix("HTTP_").replace("_", "-").lower()


@lru_cache(maxsize=512)
def _is_of_response(name: str, *, csrf: str) -> bool:
    """Is a header part of what was done, by its name alone?

    Then it is stored unless the policy says otherwise.
    """
    ours = _is_unsafe(name, csrf) or _ONE_EXCHANGE.fullmatch(name) or _SECRET.fullmatch(name)
    return not ours


def _stream(response: Any, policy: Resolved, limit: int) -> bytes | Missing:
    """Buffer a file of known, small length, or any stream if the policy says so; otherwise leave it
    alone.
    """
    if not is_buffered(response, policy, limit):
        return MISSING
    chunks = iter(response.streaming_content)
    head = []
    length = 0
    for chunk in chunks:
        head.append(chunk)
        length += len(chunk)
        if length > limit:
            response.streaming_content = chain(head, chunks)
            return MISSING
    response.streaming_content = head
    return b"".join(head)


def is_buffered(response: Any, policy: Resolved, limit: int) -> bool:
    """Is a stream read into memory, to be stored?"""
    if is_private(response):
        return False
    small_file = isinstance(response, FileResponse) and _declared_length(response) <= limit
    return not response.is_async and (small_file or policy.buffer_stream)


#: The views of which it has been said, by method and route.
_TOLD = set[tuple[str | None, str]]()


def report_not_stored(
    request: HttpRequest, response: HttpResponseBase, policy: Resolved, limit: int
) -> None:
    """Log that the body of a response is not stored, once for each view: else only a retry would
    tell.
    """
    match = request.resolver_match
    view = (request.method, "" if match is None else match.route)
    if view in _TOLD:
        return
    _TOLD.add(view)
    if is_private(response):
        why = (
            'it says "no-store". Leave that out, or type extensions=[StatusOnly()] in the '
            "policy if it is a secret"
        )
    elif response.streaming and getattr(response, "is_async", False):
        why = "it is an async stream. Return an HttpResponse"
    elif response.streaming and not is_buffered(response, policy, limit):
        why = (
            "it is a stream. Type extensions=[BufferedStreams()] in the policy if it fits into "
            "memory, or return an HttpResponse"
        )
    else:
        why = (
            f"it is longer than {limit:,} bytes. Return less, or type a larger max_body in the "
            "policy"
        )
    logger.warning(
        "The response of %s %s is not stored: %s. The work was done once, and a retry gets "
        "409 response-not-stored. This is "
        "said once for each view.",
        request.method,
        escape_uri_path(request.path),
        why,
        extra={
            "idempotency": {
                "event": "not_stored",
                "method": request.method,
                "path": escape_uri_path(request.path),
            }
        },
    )


def _declared_length(response: StreamingHttpResponse) -> float:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else float("inf")


def rebuild(outcome: Outcome, *, spoken: Spoken = _DEFAULT, original: str = "") -> HttpResponse:
    """Return the stored response, marked as a replay of the request `original`, with the status
    that its profile gives.

    Raises `ResponseNotStored` when its body was not stored, `OperationCancelled` when the work was
    cancelled, and `OperationHeld` when its effect is unknown. HttpResponse refuses line breaks in
    headers and invalid statuses: then `RecordUnreadable`.
    """
    if outcome in CANCELLATIONS:
        raise (OperationUndone if outcome == UNDONE else OperationCancelled)(headers=FINAL)
    if outcome == HELD:
        raise OperationHeld(headers=FINAL)
    if outcome.body is MISSING:
        kept = {name: value for name, value in outcome.headers if name.lower() == "location"}
        if original:
            kept[ORIGINAL] = original
        raise ResponseNotStored(
            headers={**kept, **FINAL}, extensions={"original_status": outcome.status}
        )
    headers = dict(outcome.headers)
    try:
        status_code = spoken.profile.replays_as.get(outcome.status, outcome.status)
        reason = headers.pop(REASON, None)
        headers.pop(TRACE, None)
        member = spoken.profile.marker_member
        body = outcome.body if member is None else marked(outcome, member)
        response = StoredResponse(
            body, status=status_code, reason=reason if status_code == outcome.status else None
        )
        del response["Content-Type"]
        for name, value in headers.items():
            response[name] = value
        if member is not None:
            describe_bytes(response, outcome)
    except (TypeError, ValueError) as error:  # BadHeaderError is a ValueError
        raise RecordUnreadable from error
    set_headers(
        HeaderStatus.REPLAYED, response.headers, spoken, response.status_code, original=original
    )
    return response


def marked(outcome: Outcome, member: str) -> bytes:
    """Return a stored body that says so in a member of its JSON object, and is the same otherwise;
    any other as it is.
    """
    body = outcome.body
    assert isinstance(body, bytes), "it is rebuilt"
    named = {name.lower(): value for name, value in outcome.headers}
    content_type = named.get("content-type", "").partition(";")[0].strip().lower()
    if "content-encoding" in named or not is_json(content_type):
        return body
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):  # of a body that is nested too deep to be read
        return body
    if not isinstance(found, dict):
        return body
    if member in found:  # as the first response says it
        return json.dumps({**found, member: True}).encode()
    comma = ", " if found else ""
    # Numbers stay as they are spelled.
    return b"%b%b}" % (body.rstrip()[:-1], f"{comma}{json.dumps(member)}: true".encode())


def describe_bytes(response: HttpResponse, outcome: Outcome) -> None:
    """Take the stored headers that are about the stored bytes away from a replay that was
    rewritten, and sends others.
    """
    if response.content == outcome.body:
        return
    for name, value in outcome.headers:
        if name.lower() in OF_BYTES and response.headers.get(name) == value:
            del response.headers[name]


class StoredResponse(HttpResponse):
    """A replay, with the `data` that code around a REST framework view may read."""

    @cached_property
    def data(self) -> Any:
        """The parsed body if it is JSON, else `None`."""
        content_type = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if not is_json(content_type):
            return None
        try:
            return json.loads(self.content)
        except ValueError:
            return None


def render(response: HttpResponseBase) -> None:
    """Render a template or DRF response that is not rendered yet."""
    if not getattr(response, "is_rendered", True):
        response.render()  # type: ignore[attr-defined]


def no_response(returned: Any) -> NoReturn:
    """Raise `ConfigurationError` for what a guarded view has returned that is not a response."""
    if inspect.iscoroutine(returned):
        returned.close()
        raise ConfigurationError(
            "A guarded view returned a coroutine, which would not be awaited under the "
            "guard: nothing has run. Make it "
            'an async function, and type @idempotent(guarantee="lease").'
        )
    raise ConfigurationError(
        f"A guarded view returned a value of type {type(returned).__name__}, not a "
        "response, so there is nothing to "
        "store. Put @idempotent() on the function that returns the response."
    )


# ---------------------------------- exceptions that leave a view: Django responds to some below 500

#: The exceptions that Django handles itself, and how
#: (`django.core.handlers.exception.response_for_exception`).
STATUSES: dict[type[Exception], int] = {
    Http404: 404,
    PermissionDenied: 403,
    MultiPartParserError: 400,
    BadRequest: 400,
    SuspiciousOperation: 400,
}


def status_of(error: BaseException) -> int | None:
    """Return the status of Django's response to an exception, or `None` for a server error."""
    return next((status for raised, status in STATUSES.items() if isinstance(error, raised)), None)


def response_to(request: HttpRequest, error: Exception, status: int) -> HttpResponseBase:
    """Return the response that Django makes of one of them, by the project's own handler if it has
    one.
    """
    response: HttpResponseBase = get_exception_response(
        request, get_resolver(get_urlconf()), status, error
    )
    render(response)
    return response


def answer_to(request: HttpRequest, error: Http404, view: object) -> HttpResponseBase:
    """Return the response that was remembered of an exception which is about to leave a URL's
    `view`.

    Raises the error if somebody else may see it: a decorator around the view, or a middleware's
    `process_exception`; and with DEBUG, where Django shows more.
    """
    exchange = noted_of(request)
    if exchange is None or exchange.answer is None or settings.DEBUG:
        raise error
    raised, response = exchange.answer
    match = request.resolver_match
    if raised() is not error or match is None or match.func is not view:
        raise error
    if _sees_exceptions(tuple(settings.MIDDLEWARE)):
        raise error
    return response


@lru_cache(maxsize=4)
def _sees_exceptions(middleware: tuple[str, ...]) -> bool:
    """May a middleware have a `process_exception`?

    What a factory that is a function makes is not known.
    """
    found = [import_string(name) for name in middleware]
    return any(not isinstance(each, type) or hasattr(each, "process_exception") for each in found)
