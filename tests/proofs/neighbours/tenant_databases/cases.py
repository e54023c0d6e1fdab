"""A database per tenant: user 1 of one is not user 1 of another, and with a realm the same holds
for every scope.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory, override_settings

from django_idempotency import Policy, conf, idempotent_function
from django_idempotency.models import IdempotencyRecord
from django_idempotency.scopes import scope_of
from testproject.payments.models import Effect
from tests.proofs.neighbours.tenant_databases.settings import HERE, TENANT
from tests.proofs.neighbours.tenants import FRONTS, behind, send
from tests.support.services import needs_redis

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

ALIASES = ("tenant-a", "tenant-b")
fronts = pytest.mark.parametrize("front", [*FRONTS[:2], pytest.param(FRONTS[2], marks=needs_redis)])


def shop(front: str, **more: Any) -> override_settings:
    return override_settings(IDEMPOTENCY={"STORES": behind(front), "GUARANTEE": "lease", **more})


def effects() -> dict[str, int]:
    return {alias: Effect.objects.using(alias).count() for alias in ALIASES}


def scope(user: User) -> str | None:
    return scope_of(RequestFactory().post("/"), user, conf.resolve(Policy()), "k")


@fronts
def test_users(front: str) -> None:
    """User 1 of b gets the IBAN of b and is charged, although user 1 of a used the same key.

    No setting is needed.
    """
    clients = {alias: Client() for alias in ALIASES}
    for alias, client in clients.items():
        user = User.objects.using(alias).create(pk=1, username=alias)
        token = TENANT.set(alias)
        client.force_login(user)
        TENANT.reset(token)
    with shop(front):
        for where in ("pay", "order"):  # the key is the client's, or selected
            answers = [
                send(clients[alias], where, f"{alias}.localhost") for alias in (*ALIASES, *ALIASES)
            ]
            assert answers == [
                (f"that of 1 of {alias}.localhost", replayed)
                for replayed in (False, True)
                for alias in ALIASES
            ]
    assert effects() == {"tenant-a": 2, "tenant-b": 2}
    assert set(IdempotencyRecord.objects.values_list("scope", flat=True)) == {
        f"database:{alias}/user:auth.user:1" for alias in ALIASES
    }


@fronts
def test_guests(front: str) -> None:
    """Guests belong to no database, so they meet, unless the realm says where they are."""
    hosts = [f"{alias}.localhost" for alias in ALIASES]
    with shop(front):
        assert {send(Client(), "guest", host)[0] for host in hosts} == {
            f"that of a guest of {hosts[0]}"
        }
    assert effects() == {"tenant-a": 1, "tenant-b": 0}
    with shop(front, REALM=f"{HERE}.of_router"):
        answers = [send(Client(), "guest", host) for host in (*hosts, *hosts)]
    assert answers == [
        (f"that of a guest of {host}", replayed) for replayed in (False, True) for host in hosts
    ]
    assert effects() == {"tenant-a": 2, "tenant-b": 1}


@idempotent_function(key="order")
def charge(order: int) -> int:
    return Effect.objects.create(label=f"order {order}").pk


@fronts
def test_functions(front: str) -> None:
    """The order 17 of a is not that of b."""

    def both() -> dict[str, int]:
        for alias in (*ALIASES, *ALIASES):
            token = TENANT.set(alias)
            charge(17)
            TENANT.reset(token)
        return effects()

    with shop(front):
        assert both() == {"tenant-a": 1, "tenant-b": 0}  # they meet
    with shop(front, REALM=f"{HERE}.of_router"):
        assert both() == {"tenant-a": 2, "tenant-b": 1}


class Primary:
    """The usual router: reads from a replica, writes to its primary."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"


@pytest.mark.parametrize("routers", [[], [Primary()]], ids=["TEST MIRROR", "a router"])
def test_a_user_who_was_read_from_a_replica(routers: list[Any]) -> None:
    """The principal is the same as on the primary; otherwise a retry that reads from another
    database would rerun.
    """
    User.objects.using("default").create(pk=1, username="ada")
    with override_settings(DATABASE_ROUTERS=routers):
        found = [User.objects.using(alias).get(pk=1) for alias in ("default", "replica")]
        assert [user._state.db for user in found] == ["default", "replica"]
        assert [scope(user) for user in (*found, User(pk=1))] == ["user:auth.user:1"] * 3
