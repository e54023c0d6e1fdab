"""The page of figures: bounded, readable without its pictures, and honest about a sample."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_idempotency.contrib.statistics import admin as statistics
from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.failures import failed_with
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.base import utcnow
from tests.admin.helpers import LIST, completed, released, running, staff, text_of
from tests.stores.helpers import Call, atomic_ticket
from tests.support.factories import UserFactory

PAGE = f"{LIST}statistics/"


def failed() -> None:
    operation = Call(ticket=atomic_ticket(key=uuid4().hex)).operation
    operation.open()
    operation.settle(Ending(WorkResult.FAILED, failed_with(ValueError(), at=utcnow())))


def figures(page: str) -> dict[str, list[int]]:
    """Return what the tables say in text, by figure, for each period."""
    found: dict[str, list[int]] = {}
    for name, total in re.findall(
        r'<th scope="row">([^<]+)</th>.*?</td>\s*<td>([\d,]+)</td>', page, re.DOTALL
    ):
        found.setdefault(name, []).append(int(total))
    return found


@pytest.mark.django_db
def test_every_figure_is_text(boss: Client) -> None:
    """Each figure is in a table, and each picture has a title and a description."""
    for _ in range(3):
        completed()
    failed()
    released(WorkResult.DROPPED)
    running(lease=60)
    page = text_of(boss.get(PAGE))
    found = figures(page)
    assert found["New keys"] == [6, 6, 6]
    assert found["Completed, 2xx"] == [3, 3, 3]
    assert found["Failed, and not tried again"] == [1, 1, 1]
    assert (
        len(re.findall(r"<svg class=\"idempotency-spark", page))
        == len(re.findall(r"<title id=", page))
        == len(re.findall(r"<desc id=", page))
    )
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "Estimated" not in page
    assert "<script" not in page.partition('id="content"')[2].partition("</main>")[0]


@pytest.mark.django_db
def test_what_is_zero_is_not_drawn(boss: Client) -> None:
    """A quiet hour is one sentence, and a figure that stays zero has no row."""
    completed()
    earlier = utcnow() - timedelta(days=2)
    IdempotencyRecord.objects.update(created_at=earlier, completed_at=earlier)
    page = text_of(boss.get(PAGE))
    assert figures(page) == {"New keys": [1], "Completed, 2xx": [1]}
    assert page.count("<p>No records</p>") == 2


@pytest.mark.django_db
def test_a_sample_is_called_one(boss: Client, monkeypatch: Any) -> None:
    """A large table is read in part, in the order of its ids; the page says so, and scales to all
    records.
    """
    monkeypatch.setattr(statistics, "SAMPLE", 40)
    for _ in range(200):
        completed()
    page = text_of(boss.get(PAGE))
    assert "Estimated from a sample of 40 records" in page
    assert 60 < figures(page)["New keys"][0] < 600  # of 200


@pytest.mark.django_db
def test_it_is_bounded(boss: Client) -> None:
    """Four statements on our table, each with a limit, and no response is read."""
    completed()
    with CaptureQueriesContext(connection) as queries:
        boss.get(PAGE)
    ours = [
        sql for query in queries if "idempotency_record" in (sql := query["sql"]) and "LIMIT" in sql
    ]
    assert len(ours) == 3
    assert not [sql for sql in ours if "response_body" in sql]


@pytest.mark.django_db
def test_no_records(boss: Client) -> None:
    assert "No records" in text_of(boss.get(PAGE))


@pytest.mark.django_db
def test_who_may_see_it() -> None:
    """Who may see records sees figures, and finds them from the list; nobody else does."""
    assert "Now" in text_of(staff().get(PAGE))
    assert f'href="{PAGE}"' in text_of(staff().get(LIST))
    outsider = Client()
    outsider.force_login(UserFactory(is_staff=True))
    assert outsider.get(PAGE).status_code == 403
