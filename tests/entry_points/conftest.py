"""One way to send a charge, through each of the entry points."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from testproject.payments.models import Effect
from tests.support.factories import TokenFactory

CHARGE = {"amount": 2499, "currency": "inr"}
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"

#: Where a charge is made → whether a token (DRF) or a session (plain Django) identifies the user.
ENTRY_POINTS = {
    "/api/charges/": "token",  # the mixin
    "/plain/charges/": "session",  # the decorator
    "/middleware/charges/": "session",  # the middleware alone
    "/middleware/api/charges/": "token",  # the middleware, which lends the mixin
    "/api/payouts/": "token",  # the decorator above @api_view
}


@dataclass
class Sender:
    """Sends charges to one entry point, as one user."""

    url: str
    client: Client
    headers: dict[str, str]

    def __call__(
        self, body: Any = None, *, key: str | None = KEY, url: str = "", **extra: Any
    ) -> Any:
        headers = dict(self.headers, **extra.pop("headers", {}))
        if key is not None:
            headers["Idempotency-Key"] = key
        data = (
            json.dumps(CHARGE if body is None else body)
            if not isinstance(body, (bytes, str))
            else body
        )
        extra.setdefault("content_type", "application/json")
        return self.client.post(url or self.url, data, headers=headers, **extra)


Connect = Callable[[str, User], Sender]


@pytest.fixture
def connect() -> Connect:
    """Return a function that makes a sender for a user and a URL."""

    def connect(url: str, user: User) -> Sender:
        client = Client(raise_request_exception=False)
        if ENTRY_POINTS.get(url, "session") == "session":
            client.force_login(user)
            return Sender(url, client, {})
        token = TokenFactory(user=user).key
        return Sender(url, client, {"Authorization": f"Token {token}"})

    return connect


@pytest.fixture(params=ENTRY_POINTS)
def entry_point(request: pytest.FixtureRequest, user: User, connect: Connect) -> Sender:
    return connect(request.param, user)


def effects() -> int:
    return Effect.objects.count()
