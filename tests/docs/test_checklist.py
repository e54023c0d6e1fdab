"""The checklist: the options that it prints work, and what lists routes names it."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections

from testproject.settings import DATABASE

from .pages import text

PAGE = "how-to/checklist.md"
HEADINGS = {"postgresql": "## PostgreSQL", "mysql": "## MariaDB and MySQL"}


@pytest.mark.django_db
@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="it has no options to print")
def test_the_options_work() -> None:
    """The server accepts them; MySQL with its own name for one, which the page says."""
    section = text(PAGE).partition(HEADINGS[connection.vendor])[2]
    printed = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert printed is not None
    found: dict[str, Any] = {}
    code = printed[1]
    if DATABASE == "mysql":
        assert "In MySQL the variable is `wait_timeout`" in section
        code = code.replace("idle_transaction_timeout", "wait_timeout")
    exec(code, found)
    followed = connections["default"].copy()
    followed.settings_dict["OPTIONS"].update(found["OPTIONS"])
    try:
        with followed.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
    finally:
        followed.close()


@pytest.mark.django_db
def test_the_list_of_routes_names_it() -> None:
    """For people, and not in what programs read."""
    out = StringIO()
    call_command("idempotency_routes", stdout=out)
    assert out.getvalue().rstrip().endswith(f"docs/{PAGE}")
    out = StringIO()
    call_command("idempotency_routes", json=True, stdout=out)
    assert PAGE not in out.getvalue()
