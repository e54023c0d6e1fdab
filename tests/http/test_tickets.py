"""A ticket has what its entry point found, what the policy says, and a token of its own."""

from __future__ import annotations

import os
from datetime import timedelta

from django.test import RequestFactory, override_settings

from django_idempotency import conf
from django_idempotency.core.hashing import record_id, secret_id
from django_idempotency.core.policy import Policy
from django_idempotency.core.records import Guarantee, Ticket
from django_idempotency.http.admission import Identity
from django_idempotency.runtime.registry import issuing


def ticket(policy: Policy | None = None, path: str = "/pay") -> Ticket:
    terms = conf.resolve(policy or Policy())
    return Identity("k", "user:1", RequestFactory().put(path), None).ticket(terms, issuing(terms))


def test_what_the_policy_says() -> None:
    """Durations are in seconds; in `atomic` the lease is the claim's."""
    made = ticket(Policy(guarantee="lease", lease=timedelta(minutes=1), ttl=timedelta(hours=1)))
    assert (made.id, made.guarantee, made.lease, made.ttl) == (
        record_id("user:1", "k"),
        Guarantee.LEASE,
        60,
        3600,
    )
    with override_settings(IDEMPOTENCY={"CLAIM_LEASE": 3}):
        assert ticket(Policy(guarantee="atomic")).lease == 3


def test_every_field_is_in_its_place() -> None:
    """Many fields are text, and could be swapped unnoticed."""
    made = ticket()
    assert made == Ticket(
        id=record_id("user:1", "k"),
        scope="user:1",
        key="k",
        digest=made.digest,
        owner=made.owner,
        now=made.now,
        lease=1,
        ttl=86400,
        guarantee=Guarantee.ATOMIC,
        secret_id=secret_id(conf.derive_secret()),
        method="PUT",
        path="/pay",
    )


def test_the_secret_is_read_live_and_not_shown() -> None:
    """A resolved policy is in the frames of errors, which are mailed and logged with their
    values.
    """
    with override_settings(SECRET_KEY="s1"):
        assert ticket().secret_id == secret_id("s1")
    for secret in ("hidden", b"hidden"):
        with override_settings(IDEMPOTENCY={"DERIVE_SECRET": secret}):
            assert ticket().secret_id == secret_id(secret)
            assert "hidden" not in repr(conf.resolve(Policy()))


def test_a_path_fits_its_column() -> None:
    """The longest path that fits is kept."""
    assert ticket(path="/" + "p" * 300).path == "/" + "p" * 254


def test_a_token_is_unique() -> None:
    """Tokens stay unique in a forked process, whatever the parent has drawn."""
    tokens = {ticket().owner for _ in range(100)}
    assert len(tokens) == 100
    assert {token.version for token in tokens} == {4}
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.write(writing, ticket().owner.bytes)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 16) != ticket().owner.bytes
    os.close(reading)
    os.close(writing)
