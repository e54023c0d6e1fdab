"""The client that processes of these tests resume with."""

from __future__ import annotations

import httpx

from django_idempotency.contrib.client.httpx import IdempotentClient


def new_client() -> httpx.Client:
    return IdempotentClient("fake", transport=httpx.HTTPTransport(verify=False), base=0.01)
