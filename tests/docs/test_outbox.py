"""The page of the outbox describes its command, its arguments and its consumer."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any
from unittest.mock import Mock

import pytest
from pika import BasicProperties

from django_idempotency.contrib import outbox
from django_idempotency.contrib.outbox.management.commands import idempotency_relay
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.publishing import can_publish
from django_idempotency.errors import InProgress, RequestMismatch

from .pages import ROOT, checked, code, table, text


def test_the_longest_pause() -> None:
    """A broker that is lost is tried again as often as the page says."""
    assert f"every {idempotency_relay.LONGEST_RECONNECT:g}" in text("how-to/outbox.md")


def test_every_argument_of_send() -> None:
    rows = [code(name) for name, _ in table("how-to/outbox.md", "## Send")]
    assert rows == list(inspect.signature(outbox.send).parameters)


def test_names() -> None:
    """The page has what the package exports, and what a publisher may read of a message."""
    page = text("how-to/outbox.md")
    assert [name for name in outbox.__all__ if name not in page] == []
    (line,) = re.findall(r"^- `message` has (.+)\.$", page, re.MULTILINE)
    shown = set(re.findall(r"`(\w+)`", line))
    assert shown == {field.name for field in Message._meta.fields} - {
        "id",
        "last_error",
        "not_before",
    }


@pytest.mark.parametrize(
    ("error", "does"),
    [
        (None, ["basic_ack"]),
        (InProgress(), ["queue_declare", "basic_publish", "basic_ack"]),
        (ValueError("a failure"), ["queue_declare", "basic_publish", "basic_ack"]),
        (RequestMismatch(), ["basic_reject"]),
    ],
    ids=["done", "not yet", "failed", "never"],
)
def test_the_consumer(error: Exception | None, does: list[str]) -> None:
    """The consumer runs as printed: what is not done comes back after a pause, its copy first;
    nothing at once.
    """
    page = text("how-to/outbox.md")
    found = re.search(
        r"<!-- runs: the consumer -->\n\n```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    assert found
    names: dict[str, Any] = {"__name__": "ledger"}
    exec(found[1], names)
    names["book"] = Mock(side_effect=error)
    channel = Mock()
    names["on_message"](
        channel, Mock(delivery_tag=1), BasicProperties(message_id="m-1"), b'{"order": 1}'
    )
    names["book"].assert_called_once_with("m-1", {"order": 1})
    assert [name for name, _, _ in channel.mock_calls] == does


@pytest.mark.parametrize(
    "row", checked("how-to/outbox.md", "publishers"), ids=lambda row: code(row[0])
)
def test_each_publisher(row: list[str]) -> None:
    """Its class is there, needs no more than its extra, and has what a subclass sets."""
    module, _, name = code(row[0]).rpartition(".")
    publisher = getattr(
        import_module(f"django_idempotency.contrib.outbox.publishers.{module}"), name
    )
    assert can_publish(publisher)
    assert [each for each in re.findall(r"`(\w+)`", row[2]) if not hasattr(publisher, each)] == []
    assert re.search(rf"^{code(row[1])} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
