"""Dialects of published guidelines and specifications."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, ClassVar

from django.utils.http import parse_http_date

from ...api import Answer, Dialect, meta_name
from ...errors import KeyAhead, KeyExpired, KeyMalformed, Problem, RequestMismatch

_UUID = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_UUID4 = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-4[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"
_UUID7 = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-7[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"

# A client's name stands before its key, with a space between.
_CLIENT = re.compile(r"[!-~]{1,128}")
# RFC 9110 section 5.6.7.
_IMF_FIXDATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
)


class Repeatability(Dialect):
    """Speaks as Repeatable Requests 1.0 (OASIS), as in Azure's guidelines. The window leaves room
    within a `ttl` of a day.
    """

    field = "Repeatability-Request-ID"
    spelling = "bare"
    client_field = "Repeatability-Client-ID"
    first_sent_field = "Repeatability-First-Sent"
    window = 12 * 60 * 60
    ahead = 5 * 60
    statuses: ClassVar = {RequestMismatch: 400}
    refuses_methods = True
    remembers = frozenset(range(200, 500))
    sets = ("Repeatability-Result",)
    error_type = "application/json"

    #: The words of `Idempotency-Status` of a request that was accepted and is repeatable.
    accepted = frozenset(
        {
            "created",
            "released",
            "failed",
            "lost",
            "replayed",
            "not-stored",
            "in-progress",
            "held",
            "unknown",
        }
    )

    def read_key(self, sent: object, meta: Mapping[str, Any]) -> str | None:
        """Return the key of a request within the window, behind the name of its client."""
        self.require_timely(sent, meta, now=datetime.now(timezone.utc))
        key = super().read_key(sent, meta)
        if key is None:
            return None
        if " " in key:  # a space ends the client's name
            raise self.malformed()
        client = meta.get(meta_name(self.client_field or ""))
        if client is None:
            return key
        if not _CLIENT.fullmatch(str(client)) or len(key) + len(str(client)) >= Dialect.max_length:
            raise KeyMalformed(
                f"The header {self.client_field} is malformed. Send 1 to 128 visible ASCII "
                "characters."
            )
        return f"{client} {key}"

    def require_timely(self, sent: object, meta: Mapping[str, Any], *, now: datetime) -> None:
        """Refuse a request outside the window. `sent` is its key; `None`: there is none.

        Raises `KeyMalformed` for what is not a date and for one header without the other,
        `KeyExpired` and `KeyAhead`.
        """
        header = self.first_sent_field or ""
        first_sent = meta.get(meta_name(header))
        if (sent is None) is not (first_sent is None):
            raise KeyMalformed(f"Send the headers {self.field} and {header} together, or neither.")
        if first_sent is None:
            return
        text = str(first_sent)
        try:
            if not _IMF_FIXDATE.fullmatch(text):
                # As parse_http_date() raises for a day that does not exist.
                raise ValueError(text)  # noqa: TRY301
            sent_at = parse_http_date(text)
        except ValueError as error:
            raise KeyMalformed(
                f"The header {header} is malformed. Send the time in GMT, such as "
                "Tue, 15 Nov 1994 08:12:31 GMT."
            ) from error
        age = now.timestamp() - sent_at
        if age > self.window:
            raise KeyExpired
        if age < -self.ahead:
            raise KeyAhead

    def headers(self, answer: Answer) -> dict[str, str]:
        """Return the headers, with the one that says if the request was accepted."""
        found = super().headers(answer)
        if answer.status:
            accepted = answer.status in self.accepted
            found["Repeatability-Result"] = "accepted" if accepted else "rejected"
        return found

    def error_body(self, problem: Problem, status: int, request: Any) -> dict[str, Any]:
        """Return an error as OData has it."""
        code = problem.code.title().replace("-", "")
        return {"error": {"code": code, "message": problem.detail}}


class Aip155(Dialect):
    """Speaks as Google's AIP-155. Only a success counts, and the nil UUID is no UUID4."""

    carrier = "body"
    field = "request_id"
    max_length = 36
    pattern = _UUID4
    statuses: ClassVar = {RequestMismatch: 400}
    remembers = frozenset(range(200, 400))
    error_type = "application/json"

    #: google.rpc.Code, by its HTTP mapping.
    codes: ClassVar = {
        400: "INVALID_ARGUMENT",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        409: "ABORTED",
        429: "RESOURCE_EXHAUSTED",
        501: "UNIMPLEMENTED",
        503: "UNAVAILABLE",
    }

    def error_body(self, problem: Problem, status: int, request: Any) -> dict[str, Any]:
        """Return an error as Google's clients parse it."""
        known = self.codes.get(status, "FAILED_PRECONDITION" if status < 500 else "INTERNAL")
        return {"error": {"code": status, "message": problem.detail, "status": known}}


class Zalando(Dialect):
    """Speaks as Zalando's guidelines, rule 230."""

    spelling = "bare"
    max_length = 36
    pattern = _UUID
    statuses: ClassVar = {RequestMismatch: 400}


class Iceberg(Dialect):
    """Speaks as Apache Iceberg's REST catalog: a conflict is final there, and a server error never
    is.
    """

    spelling = "bare"
    max_length = 36
    pattern = _UUID7
    remembers = frozenset(range(200, 500)) - {401, 403, 408, 425, 429}
    error_type = "application/json"

    def error_body(self, problem: Problem, status: int, request: Any) -> dict[str, Any]:
        """Return an error as catalogs' clients parse it."""
        kind = f"{problem.code.title()}-Exception".replace("-", "")
        return {"error": {"message": problem.detail, "type": kind, "code": status}}
