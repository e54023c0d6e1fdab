"""The text that names a key's owner: readable if possible, and never equal to another owner's."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idempotency.scopes import LONGEST, hashed, observed, qualified, spellings, user_of

USER = "user:auth.user:7"

#: Scope, realm, database → what is stored; `#` stands for a hash.
STORED = [
    ((USER, None, None), USER),
    ((USER, "acme", None), f"realm:acme/{USER}"),
    ((USER, None, "tenant_b"), f"database:tenant_b/{USER}"),
    ((USER, "acme", "tenant_b"), f"realm:acme/database:tenant_b/{USER}"),
    # A host with its port.
    (
        (USER, "shop.example.com:8000", None),
        f"realm:shop.example.com:8000/{USER}",
    ),
    (("anonymous", "acme", None), "realm:acme/anonymous"),
    # ---- a name that could be mistaken for something else, or does not fit
    ((USER, "a/b", None), f"realm#/{USER}"),
    ((USER, "", None), f"realm#/{USER}"),
    ((USER, "two words", None), f"realm#/{USER}"),
    ((USER, "münchen", None), f"realm#/{USER}"),
    ((USER, "a" * 64, None), f"realm:{'a' * 64}/{USER}"),
    ((USER, "a" * 65, None), f"realm#/{USER}"),
    ((USER, None, "a/b"), f"database#/{USER}"),
    # ---- a scope that does not fit
    (("scope:" + "x" * 249, None, None), "scope:" + "x" * 249),
    (("scope:" + "x" * 250, None, None), "scope#"),
    (("scope:" + "x" * 249, "acme", None), "realm:acme/scope#"),
    (("scope:a\nb", "acme", None), "realm:acme/scope#"),
    (("scope:" + "x" * 300, "m" * 300, "d" * 300), "realm#/database#/scope#"),
]


def shape(scope: str) -> str:
    """Return a scope with `#` in place of each hash."""
    while "#sha256:" in scope:
        before, _, behind = scope.partition("#sha256:")
        assert set(behind[:64]) <= set("0123456789abcdef")
        scope = f"{before}#{behind[64:]}"
    return scope


@pytest.mark.parametrize(("parts", "stored"), STORED, ids=range(len(STORED)))
def test_what_is_stored(parts: tuple[str, str | None, str | None], stored: str) -> None:
    """Plain names stay readable for the admin."""
    scope, realm, database = parts
    found = qualified(scope, realm=realm, database=database)
    assert shape(found) == stored
    assert len(found) <= LONGEST


def test_no_two_owners_share_a_scope() -> None:
    """Separators in a name never make it look like the realm of another owner."""
    names = [
        "a",
        "b",
        "a/b",
        "a/user:x.y:1",
        "realm:a/",
        "a/realm:b",
        "#sha256:" + "0" * 64,
        "a:b",
        "",
        "é",
        "a" * 300,
    ]
    scopes = [USER, "anonymous", "call:a", *(f"scope:{name}" for name in names)]
    owners = [
        (scope, realm, alias)
        for scope in scopes
        for realm in (None, *names)
        for alias in (None, "a", "a/b")
    ]
    stored = [qualified(scope, realm=realm, database=alias) for scope, realm, alias in owners]
    assert len(set(stored)) == len(owners)
    assert all(
        len(scope) <= LONGEST and scope.isascii() and scope.isprintable() for scope in stored
    )


REALMS = st.none() | st.text(alphabet="a/:#é ", max_size=4)
NAMES = st.text(alphabet="a/:#é ", max_size=4)


@given(st.lists(st.tuples(NAMES, REALMS, REALMS), min_size=2, max_size=4, unique=True))
def test_no_two_owners_share_a_scope_whatever_they_are_called(
    owners: list[tuple[str, str | None, str | None]],
) -> None:
    """The same holds for arbitrary names."""
    stored = [
        qualified(f"scope:{name}", realm=realm, database=alias) for name, realm, alias in owners
    ]
    assert all(one != other for one, other in combinations(stored, 2))


def test_a_hash_reveals_nothing_of_the_name() -> None:
    """A hash shows only its kind, so that an operator knows what to look for."""
    assert shape(hashed("scope:live-session-key")) == "scope#"
    assert hashed("scope:a") != hashed("scope:b")
    assert hashed("scope:a") != hashed("call:a")


#: What is typed, with the realm beside it → what the stored scope may be, by scope, realm and
#: database.
TYPED = [
    ((USER, None), [(USER, None, None)]),
    ((USER, "acme"), [(USER, "acme", None)]),
    ((f"realm:acme/{USER}", None), [(USER, "acme", None)]),
    ((f"realm:münchen/{USER}", None), [(USER, "münchen", None)]),
    ((f"realm:acme/database:b/{USER}", None), [(USER, "acme", "b")]),
    ((f"database:b/{USER}", "acme"), [(USER, "acme", "b")]),
    ((qualified(USER, realm="a/b", database="c/d"), None), [(USER, "a/b", "c/d")]),
    (("scope:" + "x" * 300, None), [("scope:" + "x" * 300, None, None)]),
    # ---- a name that may be stored as its hash
    (("scope:acme", None), [("scope:acme", None, None), (hashed("scope:acme"), None, None)]),
    (("realm:r/scope:acme", None), [("scope:acme", "r", None), (hashed("scope:acme"), "r", None)]),
    ((hashed("scope:acme"), "r"), [(hashed("scope:acme"), "r", None)]),
]


@pytest.mark.parametrize(
    "scope", [USER, f"realm:acme/{USER}", "scope:" + "x" * 249, qualified(USER, realm="r" * 300)]
)
def test_an_observed_key_has_a_scope_of_its_own(scope: str) -> None:
    """It fits its column, says what it is, and is found as it is typed; no owner has it."""
    found = observed(scope)
    assert found.startswith("mode:observe/")
    assert len(found) <= LONGEST
    assert spellings(found) == (found,)
    assert observed(scope[:-1]) != found


@pytest.mark.parametrize(("typed", "meant"), TYPED, ids=range(len(TYPED)))
def test_what_a_person_types(
    typed: tuple[str, str | None], meant: list[tuple[str, str | None, str | None]]
) -> None:
    """A stored scope is found by the names that a person knows, and by what a log shows."""
    scope, realm = typed
    assert spellings(scope, realm=realm) == tuple(
        qualified(s, realm=r, database=d) for s, r, d in meant
    )


@pytest.mark.parametrize(
    ("scope", "user"),
    [
        ("user:auth.user:7", ("auth.user", "7")),
        ("realm:acme/user:auth.user:7", ("auth.user", "7")),
        ("mode:observe/realm#sha256:00/user:auth.user:a/b", ("auth.user", "a/b")),
        ("realm:acme/database:other/user:auth.user:7", None),  # another person
        ("scope:x/user:auth.user:7", None),  # a client's own text
        ("scope:realm:acme/user:auth.user:7", None),
        ("realmx:acme/user:auth.user:7", None),
        ("user#sha256:00", None),
        ("anonymous", None),
        ("", None),
    ],
)
def test_whose_scope_it_is(scope: str, user: tuple[str, str] | None) -> None:
    """Read from left to right, so that no text of a client reads as a user."""
    assert user_of(scope) == user
