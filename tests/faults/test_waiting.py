"""`wait=5` on gunicorn as people start it: single-threaded workers, and threads that are
made on demand.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as Unanswered
from pathlib import Path

import pytest

from .clients import Customer, assert_first, assert_replay, new_key
from .plans import Faults
from .servers import gunicorn

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

PATH = "/open/waiting/"
#: Seconds in which a request that does not wait would have been answered.
SHORT = 2


@pytest.mark.parametrize(
    "pool", [(4, 1), (1, 8), (1, 32)], ids=["-w 4", "--threads 8", "--threads 32"]
)
def test_of_two_requests_at_once_one_waits(
    faults_folder: Path, tmp_path: Path, customer: Customer, faults: Faults, pool: tuple[int, int]
) -> None:
    """A click and its double both get the response, in a process that has served nothing before."""
    with gunicorn(tmp_path, pool) as server:
        click = faults(new_key(), "viewing", "pause")
        first = customer.begin(server, PATH, click.key)
        click.await_reached()
        double = customer.begin(server, PATH, click.key)
        with pytest.raises(Unanswered):
            double.result(timeout=SHORT)
        click.go_on()
        assert_first(first.result())
        assert_replay(double.result(), first.result())
