"""What the clients ask for. A new workload is a class here, and its row in WORKLOADS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

import httpx


class Workload(Protocol):
    """One kind of operation, which a client repeats under one key until it is finished."""

    def prepare(self) -> None:
        """Write into the new database what the requests need."""

    def send(self, client: httpx.Client, key: str) -> httpx.Response:
        """Send the request of an operation."""

    def is_finished(self, response: httpx.Response) -> bool:
        """Is this what the client waits for?"""

    def effects(self) -> Mapping[str, int]:
        """Return how many effects each key has left."""


class Charges:
    """One charge, through REST framework, its token authentication and `atomic`."""

    token = "0" * 40

    def prepare(self) -> None:
        from django.contrib.auth.models import User
        from rest_framework.authtoken.models import Token

        Token.objects.create(key=self.token, user=User.objects.create(username="asha"))

    def send(self, client: httpx.Client, key: str) -> httpx.Response:
        headers = {"Authorization": f"Token {self.token}", "Idempotency-Key": key}
        return client.post("/api/charges/", json={"amount": 2499, "currency": "inr"}, headers=headers)

    def is_finished(self, response: httpx.Response) -> bool:
        return response.status_code == 201

    def effects(self) -> Mapping[str, int]:
        from testproject.payments.models import Charge, Effect

        counted = Counter(Effect.objects.filter(label="charge").values_list("idempotency_key", flat=True))
        halves = abs(counted.total() - Charge.objects.count())
        return counted + Counter({"(an effect without its charge, or the reverse)": halves})


WORKLOADS: dict[str, Workload] = {"charges": Charges()}
