"""The pages of the outbox describe its command and its publisher."""

from __future__ import annotations

import inspect
import re
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.management import load_command_class
from pika import BasicProperties

from django_idempotency.contrib import outbox
from django_idempotency.contrib.outbox.management.commands import relay_outbox
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.errors import InProgress, RequestMismatch

from .pages import code, table, text
from .test_reference import DJANGOS


def test_every_option() -> None:
    """The page has every option with its default."""
    parser = load_command_class("django_idempotency.contrib.outbox", "relay_outbox").create_parser(
        "manage.py", "relay_outbox"
    )
    ours = {
        action.option_strings[0]: action.default
        for action in parser._actions
        if action.option_strings and action.dest not in DJANGOS
    }
    rows = {code(option): default for option, default, _ in table("reference/commands.md", "## relay_outbox")}
    assert list(rows) == list(ours)
    assert rows["--batch"] == f"`{ours['--batch']}`"
    assert rows["--poll"] == f"`{ours['--poll']:g}`"
    assert f"every {relay_outbox.LONGEST_RECONNECT:g}" in text("reference/commands.md")


def test_every_argument_of_send() -> None:
    rows = [code(name) for name, _ in table("how-to/outbox.md", "## Send")]
    assert rows == list(inspect.signature(outbox.send).parameters)


def test_names() -> None:
    """The page has what the package exports, and what a publisher may read of a message."""
    rows = table("reference/python.md", "## django_idempotency.contrib.outbox")
    listed = " ".join(name for name, _ in rows)
    assert all(f"`{name}" in listed for name in outbox.__all__)
    shown = set(rows[-1][1].partition(":")[2].replace("`", "").replace(" ", "").split(","))
    assert shown == {field.name for field in Message._meta.fields} - {"id", "last_error", "not_before"}


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
    """The consumer runs as printed: what is not done comes back after a pause, its copy first; nothing at once."""
    page = text("how-to/outbox.md")
    found = re.search(r"<!-- runs: the consumer -->\n\n```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert found
    names: dict[str, Any] = {"__name__": "ledger"}
    exec(found[1], names)
    names["book"] = Mock(side_effect=error)
    channel = Mock()
    names["on_message"](channel, Mock(delivery_tag=1), BasicProperties(message_id="m-1"), b'{"order": 1}')
    names["book"].assert_called_once_with("m-1", {"order": 1})
    assert [name for name, _, _ in channel.mock_calls] == does
