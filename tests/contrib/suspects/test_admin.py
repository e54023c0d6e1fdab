"""The page of suspects: what it finds, links to, and for whom; it reads a bounded number of rows,
and never writes.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_idempotency.contrib.suspects import admin as suspects
from testproject.payments.models import Charge
from tests.admin.helpers import LIST, staff, text_of
from tests.support.factories import UserFactory

PAGE = f"{LIST}suspects/"
SOURCE = {"model": "payments.Charge", "same": ["user", "amount"], "within": 300}


@pytest.fixture
def charges(settings: Any, db: None) -> list[Charge]:
    """Two charges of one user and amount, and another one."""
    settings.IDEMPOTENCY = {"SUSPECTS": [SOURCE]}
    user: User = UserFactory()
    return [
        Charge.objects.create(user=user, amount=amount, currency="eur")
        for amount in (2499, 2499, 100)
    ]


def test_it_finds_them(boss: Client, charges: list[Charge]) -> None:
    """A group has its facts, its rows and nothing else; the list links to the page."""
    with CaptureQueriesContext(connection) as queries:
        text = text_of(boss.get(PAGE))
    main = text.partition("<main")[2]
    assert "payments.Charge: user, amount" in main
    assert "amount: <code>2499</code>" in main
    assert "amount: <code>100</code>" not in main
    assert main.count('<th scope="rowgroup" rowspan="2">') == 1
    asked = [sql for query in queries if "payments_charge" in (sql := query["sql"])]
    assert len(asked) == 1
    assert "LIMIT 501" in asked[0]
    assert PAGE in text_of(boss.get(LIST))


def test_there_are_more(boss: Client, charges: list[Charge], monkeypatch: Any) -> None:
    monkeypatch.setattr(suspects, "MOST_ROWS", 1)
    assert "only 1 rows were read" in text_of(boss.get(PAGE))


def test_who_may_not_see_the_model(charges: list[Charge]) -> None:
    """A source is shown to those who may view its model, and the page to those who may view
    records.
    """
    assert "payments.Charge" not in text_of(staff().get(PAGE))
    outsider = Client()
    outsider.force_login(UserFactory(is_staff=True))
    assert outsider.get(PAGE).status_code == 403


@pytest.mark.django_db
def test_without_sources(boss: Client, settings: Any) -> None:
    """The list has no link; the page says what to set, and what is wrong with what was set."""
    settings.IDEMPOTENCY = {}
    assert PAGE not in text_of(boss.get(LIST))
    assert "No source is configured" in text_of(boss.get(PAGE))
    for wrong in (
        {"model": "payments.Charge"},
        {**SOURCE, "same": ["nothing"]},
        {**SOURCE, "within": "5m"},
        "x",
    ):
        settings.IDEMPOTENCY = {"SUSPECTS": [wrong]}
        assert 'class="errornote"' in text_of(boss.get(PAGE))
