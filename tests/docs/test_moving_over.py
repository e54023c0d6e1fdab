"""The page for users of other packages: what it says to type works here."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import PurePath
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from django_idempotency import (
    OnReplay,
    Policy,
    StatusOnly,
    conf,
    errors,
    idempotent,
    idempotent_function,
)
from django_idempotency.contrib.batches import process_batch
from django_idempotency.core.canonical import UnhashableValue, canonical_bytes, is_missing
from django_idempotency.core.policy import FIELDS
from django_idempotency.core.records import OutcomeKind
from django_idempotency.functions.handle import Handle
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.dynamodb import DynamoDBStore
from django_idempotency.stores.dynamodb.items import Schema
from django_idempotency.stores.redis import RedisStore
from django_idempotency.testing import override_idempotency

from .pages import _CODE, ROOT, table, text
from .test_code import KEYWORDS

PAGE = "how-to/moving-over.md"
#: How the tables begin.
POWERTOOLS, DJANGO = "## From AWS Lambda Powertools", "## From django-idempotency-key\n"
DRF_IDEMPOTENCY, IDEMKIT = "## From drf-idempotency\n", "## From idemkit"
BY_METHOD = "## From djangorestframework-idempotency-key"
BY_MIXIN, CALLS = "## From drf-idempotencykey", "Functions and messages:"
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
    """Yield each call with each of its keywords.

    A keyword without a call belongs to `idempotent_function`.
    """
    for code in shown(table_):
        alone = re.match(r"[a-z_]+=", code)
        call = parsed(f"idempotent_function({code})" if alone else code.removeprefix("@"))
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id in CALLED
        ):
            yield from ((call.func.id, str(keyword.arg)) for keyword in call.keywords)


def entries(table_: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield each `"name": value`."""
    for code in shown(table_):
        pairs = parsed(f"{{{code}}}")
        for key, value in (
            zip(pairs.keys, pairs.values, strict=True) if isinstance(pairs, ast.Dict) else ()
        ):
            if isinstance(key, ast.Constant):
                yield str(key.value), value


@pytest.mark.parametrize("table_", [POWERTOOLS, DJANGO, DRF_IDEMPOTENCY, IDEMKIT, CALLS])
def test_keywords(table_: str) -> None:
    """The keywords are in the signature of what is called."""
    found = list(keywords(table_))
    assert found
    assert [(called, keyword) for called, keyword in found if keyword not in CALLED[called]] == []


def test_the_handle() -> None:
    """What a guarded function's handle is asked for, it has."""
    asked = re.findall(r"charge\.idempotency\.(\w+)\(", " ".join(shown(POWERTOOLS)))
    assert asked == ["lookup", "forget"]
    assert [name for name in asked if not hasattr(Handle, name)] == []


def test_names_of_theirs() -> None:
    """What is said to be called there is called so there."""
    layer = pytest.importorskip(
        "aws_lambda_powertools.utilities.idempotency"
    ).DynamoDBPersistenceLayer
    called = re.findall(r"`layer\.(\w+)\(", text(PAGE))
    assert called == ["get_record", "delete_record", "save_inprogress", "save_success"]
    assert [name for name in called if not hasattr(layer, name)] == []


def said(pattern: str) -> tuple[list[str], ...]:
    """Return the `code` in each group of a pattern on the page, whose lines are joined."""
    found = re.search(pattern, re.sub(r"\s+", " ", text(PAGE)))
    assert found, pattern
    return tuple([code for _, code in _CODE.findall(group)] for group in found.groups())


def test_falsy_keys() -> None:
    """Which are keys, and which are missing: here and there."""
    theirs = pytest.importorskip(
        "aws_lambda_powertools.utilities.idempotency.persistence.base"
    ).BasePersistenceLayer
    keys, missing = said(r"contract\]\(\S+\)\. (.+?) are keys; (.+?) are missing\.")
    assert (len(keys), len(missing)) == (3, 4)
    for found, is_so in ((keys, False), (missing, True)):
        for value in map(ast.literal_eval, found):
            assert (is_missing(value), theirs.is_missing_idempotency_key(value)) == (is_so, is_so)


#: What the page says that a key may hold → one of them.
HELD = {
    "bytes": b"x",
    "dates": date(2026, 1, 1),
    "UUIDs": UUID(int=1),
    "sets": {1},
    "enums": OutcomeKind.HELD,
    "paths": PurePath("/x"),
    "saved model instances": IdempotencyRecord(pk=UUID(int=1)),
}


def test_what_a_key_may_hold() -> None:
    """Each has a value here, and none there."""
    encoder = pytest.importorskip("aws_lambda_powertools.shared.json_encoder").Encoder
    (listed,) = re.findall(
        r"more than JSON\*\*: (.+?)\. Functions and", re.sub(r"\s+", " ", text(PAGE))
    )
    assert listed.split(", ") == list(HELD)
    for value in HELD.values():
        assert canonical_bytes(value)
        with pytest.raises(TypeError):
            json.dumps(value, cls=encoder)
    with pytest.raises(UnhashableValue):
        canonical_bytes(test_falsy_keys)


def test_exceptions() -> None:
    """What their exceptions become exists."""
    for name in (
        "InProgress",
        "RequestMismatch",
        "KeyMissing",
        "StoreUnavailable",
        "ResponseNotStored",
        "DeadlinePassed",
    ):
        assert f"`{name}`" in text(PAGE)
        assert hasattr(errors, name)


@pytest.mark.parametrize(
    ("kind", "record", "of_it"),
    [
        ("SQS", {"messageId": "m", "body": "{}", "eventSource": "aws:sqs"}, "messageId"),
        (
            "KinesisDataStreams",
            {"kinesis": {"sequenceNumber": "m"}, "eventID": "shard:m"},
            "kinesis.sequenceNumber",
        ),
        (
            "DynamoDBStreams",
            {"dynamodb": {"SequenceNumber": "m"}, "eventID": "e"},
            "dynamodb.SequenceNumber",
        ),
    ],
)
@pytest.mark.any_database
@pytest.mark.django_db
def test_batches(kind: str, record: dict[str, Any], of_it: str) -> None:
    """Their processor calls our function, and our batch reports the same id."""
    batch = pytest.importorskip("aws_lambda_powertools.utilities.batch")
    done = []

    @idempotent_function(key=f"record.{of_it}", key_prefix=f"batch-{kind}", required=True)
    def handler(record: Any) -> None:
        done.append(record)
        raise LookupError

    processor = batch.BatchProcessor(
        event_type=batch.EventType[kind], raise_on_entire_batch_failure=False
    )
    found = batch.process_partial_response({"Records": [record]}, handler, processor)
    assert found == process_batch([record], handler, ordered=True).batch_item_failures()
    assert found == {"batchItemFailures": [{"itemIdentifier": "m"}]}
    assert len(done) == 2


@pytest.mark.any_database
@pytest.mark.django_db
def test_what_unwraps_the_event() -> None:
    """It stands above the guard, which sees what it has unwrapped."""
    done = []

    def unwrapped(handler: Callable[..., Any]) -> Callable[..., Any]:
        return lambda event, context: handler(event["detail"], context)

    @unwrapped
    @idempotent_function(
        data_keyword_argument="event", key="order", key_prefix="unwrapped", required=True
    )
    def handler(event: Any, context: Any) -> None:
        done.append(event)

    for sent in ("first", "again"):
        handler({"id": sent, "detail": {"order": 7}}, None)
    assert done == [{"order": 7}]


class Unstorable: ...


@pytest.mark.any_database
@pytest.mark.django_db
def test_a_result_that_cannot_be_stored(caplog: pytest.LogCaptureFixture) -> None:
    """There the decorator refuses the annotation, here the first call logs what to type."""
    theirs = pytest.importorskip(
        "aws_lambda_powertools.utilities.idempotency.serialization.pydantic"
    )
    with pytest.raises(Exception, match="not inherited from pydantic"):
        theirs.PydanticSerializer.instantiate(Unstorable)

    @idempotent_function(key="order", key_prefix="unstorable")
    def charge(order: int) -> Unstorable:
        return Unstorable()

    charge(order=7)
    assert "serializer=(dump, load)" in caplog.text


def test_the_size_of_a_record() -> None:
    """Beside the response theirs takes a tenth of a KB; what ours takes is tested with its
    store.
    """
    theirs = pytest.importorskip("aws_lambda_powertools.utilities.idempotency")
    written: dict[str, Any] = {}

    class Table(Mock):
        def put_item(self, **given: Any) -> None:
            written.update(given["Item"])

    layer = theirs.DynamoDBPersistenceLayer(table_name="t", boto3_client=Table())
    layer.configure(theirs.IdempotencyConfig(), "shop.orders.charge")
    layer.save_inprogress({"order": 7}, remaining_time_in_millis=1000)
    assert (
        100
        <= sum(len(name) + len(next(iter(value.values()))) for name, value in written.items())
        < 200
    )
    assert "beside the response a record takes 0.4 KB, there 0.1" in re.sub(r"\s+", " ", text(PAGE))


@pytest.mark.parametrize(
    ("table_", "known"),
    [
        (POWERTOOLS, {"local_cache"}),  # of any store
        (DYNAMODB, names(DynamoDBStore)),
        (REDIS, names(RedisStore) | CACHE),
        (DJANGO, set(conf.defaults())),
        (DRF_IDEMPOTENCY, {*conf.defaults(), "OPTIONS"}),
        (BY_MIXIN, set(conf.defaults())),
        (IDEMKIT, {*conf.defaults(), "OPTIONS", "local_cache"}),
    ],
    ids=["powertools", "dynamodb", "redis", "django", "drf-idempotency", "by-mixin", "idemkit"],
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
    same = [
        _CODE.findall(there) for there, here in table(PAGE, DYNAMODB) if here.startswith("the same")
    ]
    carried = {name for found in same for _, name in found}
    assert len(carried) == 3
    assert carried <= names(DynamoDBStore)
    assert (
        "the default is "
        f'`"{Schema(table="t", key_attr="id", sort_key_attr=None, static_pk_value=None, attributes={}).static}"`'
        in text(PAGE)
    )


@pytest.mark.parametrize("table_", [DRF_IDEMPOTENCY, BY_METHOD, BY_MIXIN, IDEMKIT])
def test_policies(table_: str) -> None:
    """Each policy, each setting that is one's field, and each decorator can be made."""
    names: dict[str, Any] = {"Policy": Policy, "OnReplay": OnReplay, "StatusOnly": StatusOnly}
    names |= {"idempotent": idempotent, "partner": lambda request: "", "render": lambda *_: None}
    made = [
        eval(code, dict(names))
        for each in shown(table_)
        if re.match(r"(@?idempotent|Policy|idempotency = Policy)\(.+\)$", each)
        and "..." not in (code := each.removeprefix("@").removeprefix("idempotency = "))
    ]
    made += [
        Policy(**{name.lower(): ast.literal_eval(value)})
        for name, value in entries(table_)
        if name.lower() in FIELDS
    ]
    assert made


#: Package → how its table of what behaves differently begins, which has the cases of `make peers`.
DIFFERENCES = {
    "drf_idempotency": "middleware beside middleware:",
    "djangorestframework_idempotency_key": "decorator beside mixin:",
    "drf_idempotencykey": "mixin beside mixin:",
    "idemkit": "mixin beside mixin, there with",
}


def cases(module: str) -> dict[str, str]:
    """Return the docstring of each case as a cell, with its source."""
    source = (ROOT / f"tests/proofs/peers/cases/{module}.py").read_text(encoding="utf-8")
    return {
        cell(str(ast.get_docstring(node))): str(ast.get_source_segment(source, node))
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def cell(docstring: str) -> str:
    sentence = re.sub(r"\s+", " ", docstring).removesuffix(".")
    return sentence[0].lower() + sentence[1:]


@pytest.mark.parametrize("module", DIFFERENCES)
def test_each_difference_has_a_case(module: str) -> None:
    """It is the row's first cell, and asks for the statuses that the row names."""
    rows = table(PAGE, DIFFERENCES[module])
    found = cases(module)
    assert [when for when, _, _ in rows] == list(found)
    for when, *cells in rows:
        statuses = set(re.findall(r"\b[245]\d\d\b", " ".join(cells)))
        assert {status for status in statuses if status not in found[when]} == set(), when
