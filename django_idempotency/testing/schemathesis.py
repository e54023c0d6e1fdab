"""A check for schemathesis, version 4: what the schema says of an operation's keys is what happens.

Importing this module registers it, as `idempotency`:

    case.call_and_validate(checks=[idempotency])

It also registers a hook that gives each generated request a key of its own: schemathesis sends the same one with
different requests, which an API rightly refuses.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from contextvars import ContextVar
from copy import deepcopy
from typing import Any

import schemathesis
from django.utils.http import http_date

from .promises import Answer, hold, is_well_formed, new_key

#: Headers of one request, which its retries get anew.
_OWN = frozenset(
    {
        *("accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding"),
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
def fresh_key(ctx: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:  # noqa: ARG001
    """Replace a generated key by one that was never used, if it is well-formed."""
    terms = case.operation.definition.raw.get("x-idempotency")
    if terms is None or _CHECKING.get():
        return
    carrier, name = terms["carrier"], terms["carrier"]["name"]
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
    """Send the request of a case again, under keys of its own, and compare the responses with `x-idempotency`.

    It makes up to five requests. Credentials are those of the response's own request. Raises `AssertionError`.
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
            if name.lower() not in _OWN and (carrier["in"] != "header" or name.lower() != carrier["name"].lower())
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
        again = case.operation.Case(
            method=case.method,
            path_parameters=deepcopy(case.path_parameters),
            query=query,
            body=body,
            media_type=case.media_type,
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
