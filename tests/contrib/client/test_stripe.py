"""Stripe's own SDK, through an adapter: the how-to shows it."""

from __future__ import annotations

import pytest
import requests

from django_idempotency.contrib.client import outgoing
from django_idempotency.contrib.client.models import OutgoingCall
from django_idempotency.contrib.client.requests import IdempotentAdapter

from .callers import QUICK
from .provider import LOST, Provider

stripe = pytest.importorskip("stripe")
pytestmark = [pytest.mark.any_database, pytest.mark.django_db]


def test_the_sdk(provider: Provider) -> None:
    """Its key of the first call is stored, and sent by every later one, which makes keys of its
    own.
    """
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", IdempotentAdapter("fake", **QUICK))
        api = stripe.StripeClient(
            "sk_test_x",
            base_addresses={"api": provider.url},
            http_client=stripe.RequestsClient(session=session),
            max_network_retries=0,
        )
        provider.plan = [LOST] * 4
        with pytest.raises(stripe.APIConnectionError), outgoing("refund-17"):
            api.v1.refunds.create({"payment_intent": "pi_1"})
        with outgoing("refund-17"):
            refund = api.v1.refunds.create({"payment_intent": "pi_1"})
    assert refund.id == "ch_1"
    assert len(provider.seen) == 5
    assert len(set(provider.keys)) == 1
    assert list(provider.effects.values()) == [1]
    assert OutgoingCall.objects.get().state == "succeeded"
