"""Scope functions: guests, and names that are not secret."""

from __future__ import annotations

import hashlib
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.db import connections
from django.db.models import Model
from django.http import HttpRequest
from django.test import RequestFactory
from rest_framework.authtoken.models import Token, TokenProxy

from django_idempotency import Policy, conf, scopes
from django_idempotency.errors import ConfigurationError
from django_idempotency.scopes import hashed, scope_of

KEY = "k" * 20


def visit(engine: str = "db", key: str | None = None) -> Any:
    request: Any = RequestFactory().post("/")
    request.session = import_module(f"django.contrib.sessions.backends.{engine}").SessionStore(key)
    return request


def scope(request: HttpRequest, **fields: Any) -> str | None:
    return scope_of(request, None, conf.resolve(Policy(**fields)), KEY)


@pytest.mark.django_db
@pytest.mark.parametrize("engine", ["db", "cache", "cached_db"])
def test_a_guest(engine: str) -> None:
    """The scope is the same for each request of a session, and differs between sessions; it never
    contains the key.
    """
    one, other = visit(engine), visit(engine)
    for request in (one, other):
        request.session.create()
    again = visit(engine, one.session.session_key)
    found = scope(one, scope=scopes.session)
    assert found is not None
    assert found.startswith("scope:session:")
    assert one.session.session_key not in found
    assert found == scope(again, scope=scopes.session) != scope(other, scope=scopes.session)


@pytest.mark.django_db
@pytest.mark.parametrize("key", [None, "z" * 32], ids=["none yet", "one that is over"])
def test_a_guest_without_a_session(key: str | None) -> None:
    """There is no scope: a session made now would be lost with the first response, and the retry be
    another guest's.
    """
    request = visit("db", key)
    assert scope(request, scope=scopes.session) is None
    assert request.session.session_key is None


def test_sessions_that_have_no_key_that_stays() -> None:
    """Without sessions, or with signed cookies, the error says so, and what to type."""
    with pytest.raises(ConfigurationError, match="SessionMiddleware"):
        scopes.session(RequestFactory().post("/"))
    with pytest.raises(ConfigurationError, match="SESSION_ENGINE"):
        scopes.session(visit("signed_cookies"))


def test_a_name_is_a_secret_unless_it_is_declared_public() -> None:
    """Tables, the admin and logs show its hash."""

    def email(request: HttpRequest) -> str:
        return "ada@example.com"

    assert scope(visit(), scope=email) == hashed("scope:ada@example.com")
    assert scope(visit(), scope=scopes.public(email)) == "scope:ada@example.com"
    assert "email" in repr(scopes.public(email))


async def later(request: HttpRequest) -> str:
    return "acme"


@pytest.mark.parametrize("wrong", [later, "shop.clients.partner", None, lambda: "acme"])
def test_what_is_not_a_scope_function(wrong: Any) -> None:
    """The error comes at the declaration."""
    for mark in (scopes.public, scopes.before_user):
        with pytest.raises(TypeError, match="A scope function is a sync function"):
            mark(wrong)


def project(request: HttpRequest) -> str | None:
    return request.headers.get("X-Project")


@pytest.mark.parametrize(
    ("function", "sent", "whose"),
    [
        pytest.param(project, "a", "user:auth.user:7", id="user"),
        pytest.param(scopes.before_user(project), "a", hashed("scope:a"), id="named"),
        pytest.param(scopes.before_user(scopes.public(project)), "a", "scope:a", id="public"),
        pytest.param(
            scopes.public(scopes.before_user(project)), "a", "scope:a", id="in the other order"
        ),
        pytest.param(scopes.before_user(project), "", "user:auth.user:7", id="no name"),
    ],
)
def test_who_comes_first(function: Any, sent: str, whose: str) -> None:
    """The user, unless the project says that its own name does; no name is still the user."""
    request = RequestFactory().post("/", headers={"X-Project": sent})
    assert scope_of(request, User(pk=7), conf.resolve(Policy(scope=function)), KEY) == whose


def test_a_marked_function_is_shown_by_its_name() -> None:
    """Listings are the same in each process."""
    assert repr(scopes.before_user(scopes.public(project))) == (
        "scopes.before_user(scopes.public(tests.scopes.test_scopes.project))"
    )


def of_row(row: Any) -> str | None:
    request: Any = RequestFactory().post("/")
    request.auth = row
    return scope(request, scope=scopes.auth)


def saved(model: type[Model], pk: Any, database: str = "default") -> Model:
    """Return a row as a query finds it."""
    row = model(**{model._meta.pk.attname: pk})
    row._state.adding, row._state.db = False, database
    return row


def test_a_token_without_a_user() -> None:
    """A saved row names its client."""
    assert of_row(saved(ContentType, 7)) == "scope:auth:contenttypes.contenttype:7"


@pytest.mark.parametrize(
    "row",
    [
        ContentType(pk=7),
        ContentType(),
        saved(ContentType, None),
        saved(Session, ""),
        "token",
        {"sub": "1"},
        None,
    ],
)
def test_what_is_not_a_saved_row_names_nobody(row: Any) -> None:
    """An unsaved row may have a primary key that is another with each request: then each retry
    would do the work.
    """
    assert of_row(row) is None
    assert scopes.auth(RequestFactory().post("/")) is None


@pytest.mark.parametrize(
    ("model", "pk"),
    [(Token, "9944b09199c62bcf"), (Token, "9944091996"), (Session, uuid4())],
    ids=["hex", "digits", "UUID"],
)
def test_a_token_that_is_the_primary_key_is_not_shown(model: type[Model], pk: Any) -> None:
    """Tables, the admin and logs show its hash. It is the same for each request of a token."""
    digest = hashlib.sha256(str(pk).encode()).hexdigest()
    assert (
        of_row(saved(model, pk))
        == of_row(saved(model, pk))
        == f"scope:auth:{model._meta.label_lower}:{digest}"
    )


def test_rows_of_two_databases_are_two_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica has the rows of its primary."""
    monkeypatch.setitem(connections.settings, "replica", {"TEST": {"MIRROR": "eu"}})
    eu = "scope:database:eu/auth:contenttypes.contenttype:5"
    assert [of_row(saved(ContentType, 5, each)) for each in ("eu", "replica")] == [eu, eu]
    assert (
        of_row(saved(ContentType, 5, "us")) == "scope:database:us/auth:contenttypes.contenttype:5"
    )
    assert of_row(saved(ContentType, 5)) == "scope:auth:contenttypes.contenttype:5"


def test_a_proxy_is_the_same_client() -> None:
    """One way to authenticate may find a proxy and another its model."""
    assert of_row(saved(TokenProxy, "9944b")) == of_row(saved(Token, "9944b"))
