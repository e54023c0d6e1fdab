"""Realms: the tenant of a request or a call, and that the keys of two tenants never meet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import RequestFactory, override_settings

from django_idempotency import Policy, conf, idempotent_function, realm, scopes
from django_idempotency.contrib.tenants import host, schema
from django_idempotency.errors import ConfigurationError
from django_idempotency.functions import current_operation
from django_idempotency.http.admission import key_to_guard
from django_idempotency.scopes import realm_of, scope_of
from django_idempotency.testing import override_idempotency

MEMORY = {"default": {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}}
HEADERS = {"Idempotency-Key": "k" * 20}


def by_host(request: HttpRequest | None) -> str | None:
    return None if request is None else request.get_host()


def sent(to: str = "a.localhost") -> HttpRequest:
    return RequestFactory().post("/", headers={"Host": to, **HEADERS})


@pytest.fixture(autouse=True)
def every_host(settings: Any) -> None:
    settings.ALLOWED_HOSTS = [".localhost"]


# -------------------------------------------------------------------------------------- every scope

#: What a request is, and its scope without a realm.
SCOPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "user:auth.user:7": (User(pk=7), {}),
    "scope:acme": (None, {"scope": scopes.public(lambda request: "acme")}),
    "anonymous": (None, {"anonymous": "shared"}),
}


@pytest.mark.parametrize("plain", SCOPES)
def test_every_scope_is_qualified(plain: str) -> None:
    """Scopes of a user, of a named owner and of all callers are qualified, by the policy and by the
    setting alike.
    """
    user, fields = SCOPES[plain]

    def scope(to: str, **more: Any) -> str | None:
        return scope_of(sent(to), user, conf.resolve(Policy(**fields, **more)), "k" * 20)

    assert scope("a.localhost") == scope("b.localhost") == plain  # without a realm they meet
    assert scope("a.localhost", realm=by_host) == f"realm:a.localhost/{plain}"
    with override_settings(IDEMPOTENCY={"REALM": "tests.scopes.test_realms.by_host"}):
        assert scope("b.localhost") == f"realm:b.localhost/{plain}"
        assert scope("b.localhost", realm=None) == plain


def test_no_scope_stays_no_scope() -> None:
    """A realm is not a principal."""
    assert scope_of(sent(), None, conf.resolve(Policy(realm=by_host)), "k" * 20) is None


@pytest.mark.parametrize(
    "wrong", ["", 7, b"acme", ["acme"], SimpleNamespace(slug="acme")], ids=repr
)
def test_an_invalid_realm(wrong: Any) -> None:
    """An empty name would put all callers into one realm: the error says so, without the value."""
    with pytest.raises(
        ConfigurationError, match=r"Policy\.realm must return text or None"
    ) as caught:
        realm_of(Policy(realm=lambda request: wrong), sent())
    assert "acme" not in str(caught.value)


def test_a_realm_that_is_a_coroutine_function() -> None:
    """The coroutine would become the name of every caller's realm."""

    async def slow(request: HttpRequest) -> str:
        await asyncio.sleep(0)
        return "acme"

    function: Any = slow
    with pytest.raises(ValueError, match="realm is a sync function"):
        Policy(realm=function)


# ------------------------------------------------------------------------------------- with realm()


def test_the_block_goes_before_policy_and_setting() -> None:
    """The innermost block wins; `None` is a value, too."""
    policy = Policy(realm=by_host)
    with realm("outer"):
        with realm("inner"):
            assert realm_of(policy, sent()) == "inner"
        with realm(None):
            assert realm_of(policy, sent()) is None
        assert realm_of(policy, sent()) == "outer"
    assert realm_of(policy, sent()) == "a.localhost"


@pytest.mark.parametrize(
    ("wrong", "error"), [("", ValueError), (7, TypeError), (b"acme", TypeError)]
)
def test_a_block_that_names_nothing(wrong: Any, error: type[Exception]) -> None:
    """The error comes before anything runs."""
    with pytest.raises(error, match=r"realm\(\) takes"), realm(wrong):
        pytest.fail("it ran")


# ---------------------------------------------------------------------------------------- functions

CALLS: list[int] = []
SEEN: list[str] = []


@idempotent_function(key="order", guarantee="lease")
def charge(order: int) -> int:
    CALLS.append(order)
    current = current_operation()
    assert current is not None
    SEEN.append(current.derive("provider"))
    return len(CALLS)


@idempotent_function(key="order", guarantee="lease")
async def acharge(order: int) -> int:
    await asyncio.sleep(0)
    CALLS.append(order)
    return len(CALLS)


@pytest.fixture
def calls() -> list[int]:
    CALLS.clear()
    SEEN.clear()
    return CALLS


@override_settings(IDEMPOTENCY={"STORES": MEMORY})
def test_a_call_in_two_realms(calls: list[int]) -> None:
    """Two calls have two derived keys, and each realm has its own replay; without a realm they
    would be one call.
    """
    answers = []
    for name in ("a", "b", "a", "b"):
        with realm(name):
            answers.append(charge(17))
            assert charge.idempotency.lookup(order=17) is not None
            assert charge.idempotency.scope == f"realm:{name}/call:tests.scopes.test_realms.charge"
    assert answers == [1, 2, 1, 2]
    assert len(set(SEEN)) == 2
    assert charge.idempotency.lookup(order=17) is None
    with realm("a"):
        assert charge.idempotency.forget(order=17)
        assert charge(17) == 3
    with realm("b"):
        assert charge(17) == 2


@override_settings(IDEMPOTENCY={"STORES": MEMORY})
def test_a_realm_reaches_the_tasks_that_are_started_in_it(calls: list[int]) -> None:
    """Concurrent calls in one event loop are each in their own realm."""

    async def both() -> list[int]:
        async def one(name: str) -> int:
            with realm(name):
                await asyncio.sleep(0)
                return await asyncio.create_task(acharge(17))

        return [*await asyncio.gather(one("a"), one("b")), await one("a"), await one("b")]

    with realm("outside"):
        found = asyncio.run(both())
    assert found[:2] == found[2:]
    assert sorted(found[:2]) == [1, 2]


def of_now(request: HttpRequest | None) -> str | None:
    return "served" if request is not None else NOW[0]


NOW: list[str | None] = ["a"]


@override_settings(IDEMPOTENCY={"STORES": MEMORY, "REALM": "tests.scopes.test_realms.of_now"})
def test_the_setting_is_asked_at_each_call(calls: list[int]) -> None:
    """The setting gets no request, and returns the current realm; `None` means no realm."""
    answers = []
    for now in ("a", "b", None, "a"):
        NOW[0] = now
        answers.append(charge(17))
    assert answers == [1, 2, 3, 1]
    NOW[0] = ""
    with pytest.raises(ConfigurationError, match=r"Policy\.realm"):
        charge(17)
    assert len(calls) == 3


@override_settings(IDEMPOTENCY={"STORES": MEMORY})
def test_derived_keys_while_disabled(calls: list[int]) -> None:
    """Nothing is remembered then, and two tenants' charges are still two to the provider."""
    with override_idempotency(enabled=False):
        for name in ("a", "b", "a"):
            with realm(name):
                charge(17)
        request = sent()
        assert key_to_guard(request, Policy(realm=by_host)) is None
        other = sent("b.localhost")
        assert key_to_guard(other, Policy(realm=by_host)) is None
        derived: list[Any] = [
            each.idempotency.derive("provider")  # type: ignore[attr-defined]
            for each in (request, other, request)
        ]
    assert SEEN[0] == SEEN[2] != SEEN[1]
    assert derived[0] == derived[2] != derived[1]


# ------------------------------------------------------------------------------------- ready to use


def test_a_host() -> None:
    """Whatever its case, port or dot at the end: else the same work would run in two realms.

    A call has no host.
    """
    for name in ("shop.localhost", "Shop.Localhost:8000", "shop.localhost.", "shop.localhost.:443"):
        assert host(sent(name)) == "shop.localhost"
    with pytest.raises(ConfigurationError, match="needs a request"):
        host(None)


def test_a_schema_without_django_tenants() -> None:
    """The connection has no schema: the error says so, and what to type."""
    with pytest.raises(ConfigurationError, match=r'DATABASES\["default"\]\["ENGINE"\]'):
        schema(None)


@pytest.mark.parametrize("ready", [host, schema])
def test_what_is_ready_is_taken_by_a_policy(ready: Callable[..., str]) -> None:
    """A policy takes it as it is."""
    assert Policy(realm=ready).realm is ready
