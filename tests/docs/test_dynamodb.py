"""The page on DynamoDB describes the table that our command makes, in CloudFormation and in
Terraform.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from inspect import getsource
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from django_idempotency.stores.dynamodb import DynamoDBStore, client
from django_idempotency.stores.dynamodb import store as dynamodb

from .pages import DOCS, blocks, text

PAGE = DOCS / "how-to/store-in-dynamodb.md"


class NoTable(Exception): ...


class Recorder:
    """A DynamoDB client that has no table yet and records what it is asked."""

    #: As boto3's clients have them.
    exceptions = SimpleNamespace(
        ResourceNotFoundException=NoTable, ResourceInUseException=ClientError
    )

    def __init__(self) -> None:
        self.asked: dict[str, dict[str, Any]] = {}

    def patient(self) -> Recorder:
        return self

    def describe_table(self, **given: Any) -> dict[str, Any]:
        self.asked["describe_table"] = given
        if "create_table" not in self.asked:
            raise NoTable
        return {"Table": self.asked["create_table"]}

    def create_table(self, **given: Any) -> None:
        self.asked["create_table"] = given

    def get_waiter(self, name: str) -> Recorder:
        return self

    def wait(self, **_: Any) -> None:
        """Responds that the table exists."""

    def describe_time_to_live(self, **given: Any) -> dict[str, Any]:
        self.asked["describe_time_to_live"] = given
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}

    def update_time_to_live(self, **given: Any) -> None:
        self.asked["update_time_to_live"] = given


@pytest.fixture(scope="module")
def asked() -> dict[str, dict[str, Any]]:
    """Return what `idempotency_stores create` asks for with the default names, by operation."""
    store, recorder = DynamoDBStore(region_name="eu-central-1"), Recorder()
    store.client = recorder  # type: ignore[assignment]
    list(store.create_table())
    return recorder.asked


def only(language: str) -> str:
    (code,) = [block.code for block in blocks(PAGE) if block.language == language]
    return code


def found(pattern: str, code: str) -> list[Any]:
    return re.findall(pattern, code, re.MULTILINE)


def test_cloudformation(asked: dict[str, dict[str, Any]]) -> None:
    """Table, billing, key and deletion match, name by name."""
    code, made, deletion = (
        only("yaml"),
        asked["create_table"],
        asked["update_time_to_live"]["TimeToLiveSpecification"],
    )
    keys, *_ = made["KeySchema"]
    (attribute,) = made["AttributeDefinitions"]
    assert found(r"TableName: (\S+)$", code) == [made["TableName"]]
    assert found(r"BillingMode: (\S+)$", code) == [made["BillingMode"]]
    assert found(r"- AttributeName: (\S+)\n +AttributeType: (\S+)$", code) == [
        tuple(attribute.values())
    ]
    assert found(r"- AttributeName: (\S+)\n +KeyType: (\S+)$", code) == [tuple(keys.values())]
    assert found(r"^ +AttributeName: (\S+)\n +Enabled: (\S+)$", code) == [
        (deletion["AttributeName"], "true")
    ]


def test_terraform(asked: dict[str, dict[str, Any]]) -> None:
    """Terraform describes the same table."""
    code, made, deletion = (
        only("hcl"),
        asked["create_table"],
        asked["update_time_to_live"]["TimeToLiveSpecification"],
    )
    (attribute,) = made["AttributeDefinitions"]
    assert found(r'^  name += "(.+)"$', code) == [made["TableName"]]
    assert found(r'billing_mode += "(.+)"$', code) == [made["BillingMode"]]
    assert found(r'hash_key += "(.+)"$', code) == [made["KeySchema"][0]["AttributeName"]]
    assert found(r'attribute \{\n +name += "(.+)"\n +type += "(.+)"$', code) == [
        tuple(attribute.values())
    ]
    assert found(r'ttl \{\n +attribute_name += "(.+)"\n +enabled += (\S+)$', code) == [
        (deletion["AttributeName"], "true")
    ]


def rights(operations: Iterable[str]) -> set[str]:
    return {f"dynamodb:{name.title().replace('_', '')}" for name in operations}


def needed(what: str) -> set[str]:
    sentence = re.search(f"{re.escape(what)} needs? (.+?)[.;] ", text(PAGE).replace("\n", " "))
    assert sentence, what
    return set(re.findall(r"`(dynamodb:\w+)`", sentence[1]))


def test_the_rights_of_the_command(asked: dict[str, dict[str, Any]]) -> None:
    """The command needs one right for each operation that it asks for, and no other."""
    assert needed("`idempotency_stores create`") == rights(asked)


def test_the_rights_of_the_check(asked: dict[str, dict[str, Any]]) -> None:
    """The check reads what the command reads, and makes nothing.

    The page of the checks says the same.
    """
    looks = rights(operation for operation in asked if operation.startswith("describe_"))
    assert needed("[`check --deploy`](../reference/checks.md#with-deploy)") == looks
    (line,) = re.findall(
        "^For DynamoDB the host needs (.+)$", text("reference/checks.md"), re.MULTILINE
    )
    assert set(re.findall(r"`(dynamodb:\w+)`", line)) == looks


def test_the_rights_of_the_application() -> None:
    """The application needs one right per operation in the store's code."""
    operations = re.findall(r'"(\w+_item)s?"', getsource(dynamodb) + getsource(client))
    (statement,) = json.loads(only("json"))["Statement"]
    assert set(statement["Action"]) == rights(operations)
    assert statement["Resource"].endswith(f":table/{DynamoDBStore().schema.table}")
