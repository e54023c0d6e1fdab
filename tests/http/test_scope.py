"""The owner of a key."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import connections
from django.http import HttpRequest
from django.test import RequestFactory
from django.test.utils import isolate_apps
from django.utils.functional import SimpleLazyObject

from django_idempotency import Policy
from django_idempotency.conf import resolve
from django_idempotency.errors import ConfigurationError, KeyTooShort
from django_idempotency.scopes import ANONYMOUS, hashed, public, scope_of

LONG_KEY = "k" * 20

#: Return values of `Policy.scope` that no column holds as they are.
AWKWARD = {
    "too long": "t" * 300,
    "not ASCII": "société générale",
    "a NUL": "a\0b",
    "a line break": "a\nb",
    "a control character of Latin-1": "a\x85b",
    "a lone surrogate": "a\ud800b",
}


def whose(user: Any = None, *, key: str = LONG_KEY, **fields: Any) -> str | None:
    request: HttpRequest = RequestFactory().post("/", headers={"X-Tenant": "acme"})
    return scope_of(request, user, resolve(Policy(**fields)), key)


def test_a_user_is_named_by_model_and_primary_key() -> None:
    """Two models, or two users of one model, never meet."""
    assert whose(User(pk=7)) == "user:auth.user:7"
    assert whose(User(pk=8)) == "user:auth.user:8"


def test_a_user_of_another_database_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """User 1 of another database is another person, unless that is a replica of the default one."""
    user = User(pk=1)
    user._state.db = "tenant-b"  # an alias added at run time, without all that Django's own have
    monkeypatch.setitem(connections.settings, "tenant-b", {})
    assert (
        whose(user) == whose(SimpleLazyObject(lambda: user)) == "database:tenant-b/user:auth.user:1"
    )
    assert (
        whose(user, realm=lambda request: "acme") == "realm:acme/database:tenant-b/user:auth.user:1"
    )
    monkeypatch.setitem(connections.settings, "tenant-b", {"TEST": {"MIRROR": "default"}})
    assert whose(user) == "user:auth.user:1"


@isolate_apps("testproject.payments")
def test_a_proxy_is_the_same_person() -> None:
    """One way to authenticate may find a proxy and another its model: a retry is still a retry."""

    class Customer(User):
        class Meta:
            app_label = "payments"
            proxy = True

    assert (
        whose(Customer(pk=7))
        == whose(SimpleLazyObject(lambda: Customer(pk=7)))
        == whose(User(pk=7))
    )


def test_a_user_that_is_not_a_model_is_named_by_its_type() -> None:
    """The token users of stateless authentication are an example."""
    user = SimpleNamespace(is_authenticated=True, pk="b1")
    assert whose(user) == "user:types.SimpleNamespace:b1"


class Empty(str):
    """A primary key of a project's own type, which is written as nothing."""

    __slots__ = ()


@pytest.mark.parametrize(
    "user",
    [
        None,
        AnonymousUser(),
        User(),
        SimpleNamespace(is_authenticated=True),
        SimpleNamespace(is_authenticated=True, pk=""),
        SimpleNamespace(is_authenticated=True, pk=Empty()),
    ],
    ids=["none", "anonymous", "unsaved", "no key", "an empty key", "an empty key of its own type"],
)
def test_a_user_without_an_identity_has_no_scope(user: Any) -> None:
    """An anonymous user is not a principal, and neither is a user without a primary key: all such
    users would share keys.
    """
    assert whose(user) is None


def test_a_named_scope_stands_in_for_a_user() -> None:
    """`policy.scope` is called for unauthenticated requests only."""

    def tenant(request: HttpRequest) -> str:
        return request.headers["X-Tenant"]

    assert whose(AnonymousUser(), scope=public(tenant)) == "scope:acme"
    assert whose(AnonymousUser(), scope=tenant) == hashed("scope:acme")  # it may be a secret
    assert whose(User(pk=7), scope=tenant) == "user:auth.user:7"


@pytest.mark.parametrize("none", [None, ""])
def test_a_scope_function_may_return_nothing(none: str | None) -> None:
    """The request is then anonymous."""
    assert whose(scope=lambda request: none) is None
    assert whose(scope=lambda request: none, anonymous="shared") == ANONYMOUS


@pytest.mark.parametrize("name", AWKWARD.values(), ids=AWKWARD)
def test_an_awkward_name_is_hashed(name: str) -> None:
    """A name may come from a header, so it must not end in a 500; distinct names stay distinct."""
    scope = whose(scope=public(lambda request: name))
    assert scope is not None
    assert scope.isascii()
    assert scope.isprintable()
    assert len(scope) <= 255
    assert scope != whose(scope=public(lambda request: name + "x"))


def test_no_name_can_pass_for_the_hash_of_another() -> None:
    """A tenant whose name looks like a hash reaches no other tenant's keys."""
    whole = whose(scope=lambda request: "acme")
    assert whole is not None
    assert whole.startswith("scope")
    forged = whole[len("scope") + 1 :]
    assert whole not in (
        whose(scope=public(lambda request: forged)),
        whose(scope=lambda request: forged),
    )


def test_no_name_can_pass_for_a_user_or_the_shared_scope() -> None:
    """Named scopes have a namespace of their own."""
    named: Any = [lambda request: "user:auth.user:7", lambda request: ANONYMOUS]
    names = [whose(scope=public(name)) for name in named]
    assert names == ["scope:user:auth.user:7", f"scope:{ANONYMOUS}"]


@pytest.mark.parametrize("wrong", [7, b"acme", True, ["acme"]])
def test_a_name_that_is_not_text_is_the_projects_mistake(wrong: Any) -> None:
    """The error names the mistake, and not the value."""
    with pytest.raises(
        ConfigurationError, match=r"Policy\.scope must return text or None"
    ) as caught:
        whose(scope=lambda request: wrong)
    assert "acme" not in str(caught.value)


def test_a_shared_key_must_be_hard_to_guess() -> None:
    """When all callers share one scope the key is the only secret: it needs at least 20
    characters.
    """
    assert whose(anonymous="shared", key="k" * 20) == ANONYMOUS
    with pytest.raises(KeyTooShort):
        whose(anonymous="shared", key="k" * 19)


@pytest.mark.parametrize("fields", [{}, {"scope": lambda request: "acme"}])
def test_the_key_of_a_principal_may_be_short(fields: dict[str, Any]) -> None:
    """A user's key `1` is no other user's key `1`."""
    assert whose(None if fields else User(pk=7), key="1", anonymous="shared", **fields) is not None
