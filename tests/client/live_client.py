"""The client that processes of these tests resume with."""

from __future__ import annotations

import httpx

from django_idempotency.client.httpx import IdempotentTransport


def new_client() -> httpx.Client:
    transport = IdempotentTransport("fake", httpx.HTTPTransport(verify=False), base=0.01)
    return httpx.Client(transport=transport, trust_env=False)
