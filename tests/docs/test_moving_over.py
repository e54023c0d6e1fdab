"""The page for users of other packages: what it says to type works here."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_idempotency import conf
from django_idempotency.stores.dynamodb import DynamoDBStore
from django_idempotency.stores.dynamodb.items import Schema
from django_idempotency.stores.redis import RedisStore
from django_idempotency.testing import override_idempotency

from .pages import _CODE, table, text
from .test_code import KEYWORDS

PAGE = "explanation/compared.md"
#: How the tables begin.
POWERTOOLS, DJANGO = "## From AWS Lambda Powertools", "## From django-idempotency-key"
DYNAMODB, REDIS = "| `DynamoDBPersistenceLayer` |", "| `CachePersistenceLayer` |"


def names(of: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(of).parameters)


CALLED = {**KEYWORDS, "override_idempotency": names(override_idempotency)}
#: What a line of CACHES has for a client of Redis.
CACHE = {"LOCATION", "REDIS_CLIENT_CLASS"}


def shown(table_: str) -> list[str]:
    """Return the code of a table's right column, with dots as in Python."""
    cells = [found for _, here in table(PAGE, table_) for _, found in _CODE.findall(here)]
    return [cell.replace('"…"', '""').replace("…", "...") for cell in cells]


def parsed(code: str) -> ast.expr | None:
    """Return code as an expression, or `None` if it is not one."""
    try:
        return ast.parse(code, mode="eval").body
    except SyntaxError:
        return None


def keywords(table_: str) -> Iterator[tuple[str, str]]:
    """Yield each call with each of its keywords. A keyword without a call belongs to `idempotent_function`."""
    for code in shown(table_):
        alone = re.match(r"[a-z_]+=", code)
        call = parsed(f"idempotent_function({code})" if alone else code.removeprefix("@"))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in CALLED:
            yield from ((call.func.id, str(keyword.arg)) for keyword in call.keywords)


def entries(table_: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield each `"name": value`."""
    for code in shown(table_):
        pairs = parsed(f"{{{code}}}")
        for key, value in zip(pairs.keys, pairs.values, strict=True) if isinstance(pairs, ast.Dict) else ():
            if isinstance(key, ast.Constant):
                yield str(key.value), value


@pytest.mark.parametrize("table_", [POWERTOOLS, DJANGO])
def test_keywords(table_: str) -> None:
    """The keywords are in the signature of what is called."""
    found = list(keywords(table_))
    assert len(found) >= 2
    assert [(called, keyword) for called, keyword in found if keyword not in CALLED[called]] == []


@pytest.mark.parametrize(
    ("table_", "known"),
    [
        (POWERTOOLS, {"local_cache"}),  # of any store
        (DYNAMODB, names(DynamoDBStore)),
        (REDIS, names(RedisStore) | CACHE),
        (DJANGO, set(conf.DEFAULTS)),
    ],
    ids=["powertools", "dynamodb", "redis", "django"],
)
def test_options(table_: str, known: set[str]) -> None:
    """The store, its cache or the settings have the options."""
    found = {name for name, _ in entries(table_)}
    assert found
    assert found <= known


def test_attributes() -> None:
    """The attributes are those of an item that may be renamed."""
    renamed: dict[str, str] = {}
    for name, value in entries(DYNAMODB):
        if name == "attributes":
            renamed |= ast.literal_eval(value)
    schema = Schema(
        table="t",
        key_attr="id",
        sort_key_attr=None,
        static_pk_value=None,
        attributes={name: f"their_{name}" for name in renamed},
    )
    assert len(renamed) == 5
    assert set(renamed) <= set(schema.names)


def test_what_is_the_same() -> None:
    """The three options that need no change are listed."""
    same = [_CODE.findall(there) for there, here in table(PAGE, DYNAMODB) if here.startswith("the same")]
    carried = {name for found in same for _, name in found}
    assert len(carried) == 3
    assert carried <= names(DynamoDBStore)
    assert (
        f'the default is `"{Schema(table="t", key_attr="id", sort_key_attr=None, static_pk_value=None, attributes={}).static}"`'
        in text(PAGE)
    )
