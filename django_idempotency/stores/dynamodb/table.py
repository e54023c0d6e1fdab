"""Creates the table of a DynamoDB store, by its OPTIONS: `manage.py idempotency_stores create`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ...errors import ConfigurationError
from .client import DynamoDBClient, translated
from .items import Schema


def create(client: DynamoDBClient, schema: Schema, *, dry_run: bool = False) -> Iterator[str]:
    """Create what is missing, and yield a sentence about each step.

    The table is paid per request, and has the schema's keys. Waits until it is active, some five
    minutes at most, then lets DynamoDB delete expired items. Raises `ConfigurationError` for a
    table of another kind, and `StoreUnavailable`.
    """
    with translated():
        yield from _create(client.patient(), schema, dry_run)


def _create(boto: Any, schema: Schema, dry_run: bool) -> Iterator[str]:
    table = schema.table
    ttl = schema.names["ttl"]
    found = _described(boto, table)
    if found is None:
        if dry_run:
            yield f'Table "{table}" would be created, and its items deleted by "{ttl}".'
            return
        _make(boto, schema)
    boto.get_waiter("table_exists").wait(
        TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 300}
    )
    _compare(_described(boto, table) or {}, schema)
    yield f'Table "{table}" {"was created" if found is None else "exists already"}.'

    if _deletes(boto, schema):
        yield f'Its items are deleted by "{ttl}" already.'
    elif dry_run:
        yield f'Its items would be deleted by "{ttl}".'
    else:
        boto.update_time_to_live(
            TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": ttl}
        )
        yield f'Its items are deleted by "{ttl}" from now on.'


def missing(client: DynamoDBClient, schema: Schema) -> str | None:
    """Return what create() would still create: "table", "ttl" or `None`.

    Raises what create() raises, but never waits.
    """
    with translated():
        boto = client.boto
        found = _described(boto, schema.table)
        if found is None:
            return "table"
        _compare(found, schema)
        return None if _deletes(boto, schema) else "ttl"


def _deletes(boto: Any, schema: Schema) -> bool:
    """Does DynamoDB delete expired items?"""
    ttl = schema.names["ttl"]
    deletion = boto.describe_time_to_live(TableName=schema.table)["TimeToLiveDescription"]
    by = deletion.get("AttributeName")
    if deletion["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
        return False
    if by != ttl:
        raise ConfigurationError(
            f'The items of table "{schema.table}" are deleted by "{by}", but the store '
            f'writes "{ttl}". '
            f'Put "attributes": {{"ttl": "{by}"}} into its OPTIONS, or choose another table.'
        )
    return True


def _described(boto: Any, table: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = boto.describe_table(TableName=table)["Table"]
    except boto.exceptions.ResourceNotFoundException:
        return None
    return found


def _make(boto: Any, schema: Schema) -> None:
    # Another process may have created it meanwhile.
    with suppress(boto.exceptions.ResourceInUseException):
        boto.create_table(
            TableName=schema.table,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[
                {"AttributeName": name, "KeyType": kind} for name, kind in _keys(schema).items()
            ],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": "S"} for name in _keys(schema)
            ],
        )


def _compare(found: dict[str, Any], schema: Schema) -> None:
    types = {
        given["AttributeName"]: given["AttributeType"]
        for given in found.get("AttributeDefinitions", ())
    }
    has = [
        f'"{given["AttributeName"]}" ({given["KeyType"]}, {types[given["AttributeName"]]})'
        for given in found.get("KeySchema", ())
    ]
    needs = [f'"{name}" ({kind}, S)' for name, kind in _keys(schema).items()]
    if has != needs:
        raise ConfigurationError(
            f'Table "{schema.table}" has another key: {" and ".join(has)}, where the store '
            f"needs {' and '.join(needs)}. "
            'Change "key_attr" and "sort_key_attr" in its OPTIONS, or choose another table.'
        )


def _keys(schema: Schema) -> dict[str, str]:
    return {schema.key_attr: "HASH"} | (
        {schema.sort_key_attr: "RANGE"} if schema.sort_key_attr else {}
    )
