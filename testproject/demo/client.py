"""Sends real HTTP requests, each on its own connection, as a client's program would."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPMessage, RemoteDisconnected
from typing import Any

from .rows import Answer

#: Far beyond any response time here: a wait this long means a bug.
TIMEOUT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Sends requests to one server as one user."""

    host: str
    port: int
    token: str

    def charge(self, amount: int, *, key: str | None, card: str = "tok_visa") -> Answer:
        """Request a charge of `amount` paise."""
        return self._post("/api/charges/", {"amount": amount, "currency": "inr", "card": card}, key)

    def transfer(self, amount: int, *, key: str) -> Answer:
        """Request a transfer by the bank."""
        return self._post("/api/transfers/", {"amount": amount, "currency": "inr"}, key)

    def payout(self, amount: int, *, key: str) -> Answer:
        """Request a payout of `amount` paise."""
        return self._post("/api/payouts/", {"amount": amount, "currency": "inr"}, key)

    def call_tool(self, amount: int, *, key: str, call: int, breaks: bool = False) -> Answer:
        """Call the tool `charge`, as an agent does.

        `call` is the id of this call; `breaks`: its stream breaks.
        """
        params = {"name": "charge", "arguments": {"amount": amount, "currency": "inr"}}
        params["_meta"] = {"idempotency-key": key}
        wanted = {"jsonrpc": "2.0", "id": call, "method": "tools/call", "params": params}
        return self._post("/mcp/", wanted, None, breaks=breaks)

    def _post(
        self, path: str, wanted: dict[str, Any], key: str | None, *, breaks: bool = False
    ) -> Answer:
        headers = {"Content-Type": "application/json"} | (
            {} if key is None else {"Idempotency-Key": key}
        )
        body = json.dumps(wanted)
        try:
            status, answered, content = self._send("POST", path, body, headers, breaks=breaks)
        except (RemoteDisconnected, ConnectionResetError):
            return Answer(status=None)
        is_problem = answered.get_content_type() == "application/problem+json"
        return Answer(
            status=status,
            replayed=answered.get("Idempotent-Replayed") == "true",
            code=json.loads(content)["code"] if is_problem else "",
            retry_after=int(answered["Retry-After"]) if "Retry-After" in answered else None,
            body=content,
        )

    def get(self, path: str) -> Any:
        """Return the JSON at a path. Raises `OSError`, also for a response other than 200."""
        status, _, content = self._send("GET", path, None, {})
        if status != 200:
            raise ConnectionError(f"GET {path} was answered with {status}.")
        return json.loads(content)

    def _send(
        self,
        method: str,
        path: str,
        body: str | None,
        headers: dict[str, str],
        *,
        breaks: bool = False,
    ) -> tuple[int, HTTPMessage, bytes]:
        connection = HTTPConnection(self.host, self.port, timeout=TIMEOUT)
        try:
            connection.request(
                method, path, body, {"Authorization": f"Token {self.token}", **headers}
            )
            if breaks:
                connection.sock.recv(1)  # the response is on its way, so the work is done
                raise ConnectionResetError
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()
