"""A check for schemathesis, version 4: what the schema says of an operation's keys is what happens.

Importing this module registers it, as `idempotency`:

    case.call_and_validate(checks=[idempotency])

It also registers a hook that gives each generated request a key of its own: schemathesis sends the
same one with different requests, which an API rightly refuses.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import schemathesis
from django.utils.http import http_date

from ..core.statuses import HeaderStatus
from ..http.exchange import HEADER

#: A malformed key where the format does not say how long one may be.
_LONGEST = 255
#: Visible ASCII, with spaces inside: what any key is made of.
_PLAIN = re.compile(r"[!-~]([ -~]*[!-~])?")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A response: its status, its headers by their lower-case names, its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def said(self) -> str | None:
        """What it says has become of the key."""
        return self.headers.get(HEADER.lower())


#: Sends the request under a key; `None`: without one. `changed=True`: with something else in it.
Send = Callable[..., Answer]


def hold(terms: Mapping[str, Any], send: Send) -> None:
    """Send a request that the API accepts, and its retries.

    Raises `AssertionError` for what is not as published.

    A request that is refused before it is guarded, because of its credentials or its contents, says
    nothing.
    """
    key = new_key(terms["format"])
    if key is None:
        return
    first = send(key)
    accepted = 200 <= first.status < 300
    if not accepted and first.said not in (HeaderStatus.CREATED.value, HeaderStatus.RELEASED.value):
        return
    _require(
        not _is_marked(terms, first), f"the first response, {first.status}, is marked as a replay"
    )
    stored = _retried(terms, first, send(key))
    if stored and terms.get("compared", "request") != "selected":
        _refused(
            terms, "request-mismatch", send(key, changed=True), "another request under the same key"
        )
    if accepted:
        _refused(terms, "key-malformed", send(malformed_key(terms["format"])), "a malformed key")
        if terms["required"] and not terms["derived"]:
            _refused(terms, "key-missing", send(None), "a request without the required key")


def _retried(terms: Mapping[str, Any], first: Answer, retry: Answer) -> bool:
    """Judge a retry. Return whether the response is stored."""
    replayed = _is_marked(terms, retry)
    remembered = terms["remembered"]
    expected = (
        f"{first.status // 100}XX" in remembered["statuses"]
        and first.status not in remembered["except"]
    )
    if not remembered["chosen"]:
        not_stored = terms["problems"].get("response-not-stored")
        if expected and retry.said == HeaderStatus.NOT_STORED.value and retry.status == not_stored:
            return False
        _require(
            replayed or not expected,
            f"a retry of {first.status} is not a replay, but {_shown(retry)}",
        )
        _require(
            expected or not replayed,
            f"{first.status} is not remembered, but a retry is a replay of it",
        )
    if replayed:
        replays = terms.get("replays", {})
        status = replays.get("statuses", {}).get(str(first.status), first.status)
        _require(
            retry.status == status, f"a replay of {first.status} has {retry.status}, not {status}"
        )
        same = replays.get("body", "first") != "first" or retry.body == first.body
        _require(same, f"a replay has another body: {retry.body[:200]!r}, not {first.body[:200]!r}")
    return replayed


def _is_marked(terms: Mapping[str, Any], answer: Answer) -> bool:
    marker = terms.get("replays", {}).get("marker")
    if marker is None:
        return answer.said == HeaderStatus.REPLAYED.value
    return bool(answer.headers.get(marker["name"].lower()) == marker["value"])


def _refused(terms: Mapping[str, Any], code: str, answer: Answer, what: str) -> None:
    status = terms["problems"][code]
    _require(answer.status == status, f"{what} gets {_shown(answer)}, not {status}")
    _require(not _is_marked(terms, answer), f"the refusal of {what} is marked as a replay")


def _shown(answer: Answer) -> str:
    return f"{answer.status} {answer.body[:200].decode(errors='replace')}".rstrip()


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise AssertionError(f"Not as published in x-idempotency: {complaint}.")


def new_key(wanted: Mapping[str, Any]) -> str | None:
    """Return a key of a published format that was never used; `None`: only the API, or the project,
    can make one.
    """
    if wanted.get("x-issued"):
        return None
    if wanted.get("x-uuid-version") == 7:
        return str(uuid7())
    candidates = (str(uuid4()), str(uuid7()), secrets.token_hex(20))
    fitting = (each for each in candidates if len(each) <= wanted.get("maxLength", _LONGEST))
    return next((each for each in fitting if re.search(wanted.get("pattern", ""), each)), None)


def malformed_key(wanted: Mapping[str, Any]) -> str:
    """Return a key that no published format of ours allows: it is too long, or no UUID."""
    longest: int = wanted.get("maxLength", _LONGEST)
    return "x" * (longest + 1)


def is_well_formed(sent: Any, terms: Mapping[str, Any]) -> bool:
    """Is what a request has in place of a key one, as far as that is published?"""
    if (
        not isinstance(sent, str)
        or not _PLAIN.fullmatch(sent)
        or ("," in sent and terms["carrier"]["in"] == "header")
    ):
        return False
    wanted = terms["format"]
    key = sent
    if terms["carrier"].get("spelling") == "quoted":
        if len(sent) < 3 or sent[0] != '"' or sent[-1] != '"':
            return False
        key = sent[1:-1]
    if "format" in wanted:
        try:
            return wanted.get("x-uuid-version") in (None, UUID(key).version)
        except ValueError:
            return False
    fits = wanted.get("minLength", 1) <= len(key) <= wanted.get("maxLength", _LONGEST)
    return bool(fits and re.search(wanted.get("pattern", ""), key))


def uuid7() -> UUID:
    """Return a UUID of version 7 (RFC 9562), which begins with the time."""
    random = secrets.randbits(74)
    high = random >> 62
    low = random & ((1 << 62) - 1)
    return UUID(int=(time.time_ns() // 1_000_000) << 80 | 7 << 76 | high << 64 | 2 << 62 | low)


# ------------------------------------------------------------------------------------- schemathesis

#: Headers of one request, which its retries get anew.
_OWN = frozenset(
    {
        *(
            "accept-encoding",
            "connection",
            "content-length",
            "content-type",
            "host",
            "transfer-encoding",
        ),
        "x-schemathesis-testcaseid",
    }
)
#: Responses that say nothing about keys: the request has not come as far as the guard.
_BEFORE = frozenset({401, 403, 404, 405, 406, 429})
#: Changes a request without making it invalid: views ignore a parameter that they do not know.
_CHANGE = {"idempotency-check": "another request"}
#: Is the request one of the check's, whose keys are chosen?
_CHECKING: ContextVar[bool] = ContextVar("django_idempotency_checking", default=False)


@schemathesis.hook("before_call")
def fresh_key(
    ctx: schemathesis.HookContext,  # noqa: ARG001
    case: schemathesis.Case[Any],
    kwargs: dict[str, Any],  # noqa: ARG001
) -> None:
    """Replace a generated key by one that was never used, if it is well-formed."""
    terms = case.operation.definition.raw.get("x-idempotency")
    if terms is None or _CHECKING.get():
        return
    carrier = terms["carrier"]
    name = terms["carrier"]["name"]
    holder = {"header": case.headers, "query": case.query, "body": case.body}[carrier["in"]]
    if isinstance(holder, MutableMapping) and is_well_formed(holder.get(name), terms):
        key = new_key(terms["format"])
        holder[name] = holder[name] if key is None else _spelled(key, terms)


@schemathesis.check
def idempotency(
    ctx: schemathesis.CheckContext,  # noqa: ARG001 - every check gets it
    response: schemathesis.Response,
    case: schemathesis.Case[Any],
) -> None:
    """Send the request of a case again, under keys of its own, and compare the responses with
    `x-idempotency`.

    It makes up to five requests. Credentials are those of the response's own request. Raises
    `AssertionError`.
    """
    terms = case.operation.definition.raw.get("x-idempotency")
    if terms is None or case.method.lower() != case.operation.method.lower():
        return
    if response.status_code in _BEFORE or response.status_code >= 500:
        return
    carrier = terms["carrier"]

    def send(key: str | None, *, changed: bool = False) -> Answer:
        headers = {
            name: value
            for name, value in response.request.headers.items()
            if name.lower() not in _OWN
            and (carrier["in"] != "header" or name.lower() != carrier["name"].lower())
        }
        query: dict[str, Any] = {**case.query, **(_CHANGE if changed else {})}
        body = deepcopy(case.body)
        if carrier["in"] == "body" and isinstance(body, dict):
            body.pop(carrier["name"], None)
            body.update({} if key is None else {carrier["name"]: key})
        elif carrier["in"] == "query":
            query.pop(carrier["name"], None)
            query.update({} if key is None else {carrier["name"]: key})
        elif carrier["in"] == "header" and key is not None:
            headers[carrier["name"]] = _spelled(key, terms)
            if "first_sent" in terms:
                headers[terms["first_sent"]["name"]] = http_date()
        path = deepcopy(case.path_parameters)
        media = case.media_type
        again = case.operation.Case(
            method=case.method, path_parameters=path, query=query, body=body, media_type=media
        )
        checking = _CHECKING.set(True)
        try:
            answer = again.call(headers=headers)
        finally:
            _CHECKING.reset(checking)
        found = {name.lower(): values[0] for name, values in answer.headers.items()}
        return Answer(status=answer.status_code, headers=found, body=answer.content)

    if carrier["in"] != "body" or isinstance(case.body, dict):
        hold(terms, send)


def _spelled(key: str, terms: dict[str, Any]) -> str:
    return f'"{key}"' if terms["carrier"].get("spelling") == "quoted" else key
