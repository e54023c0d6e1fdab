"""django.tasks with workers of their own: one is killed halfway, and two get the same task at the
same time.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from testproject.payments.background import acharge_order, charge_order
from testproject.payments.models import Charge, Effect

from .processes import Processes
from .tasks import FolderBackend

pytestmark = [
    pytest.mark.either_server,
    pytest.mark.faults,
    pytest.mark.django_db(transaction=True),
]
#: A task, and the attempts that had left an effect when the first was killed: no transaction covers
#: an async one.
both = pytest.mark.parametrize(
    ("task", "attempts"), [(charge_order, [2]), (acharge_order, [1, 2])], ids=["sync", "async"]
)


@pytest.fixture
def order(user: User) -> dict[str, Any]:
    return {"order_id": "o-1", "user_id": user.pk, "amount": 2499}


@pytest.fixture
def backend(tmp_path: Path, settings: Any) -> FolderBackend:
    """Return the backend that `enqueue()` gives its tasks to."""
    settings.TASKS = {
        "default": {
            "BACKEND": "tests.messages.tasks.FolderBackend",
            "OPTIONS": {"folder": str(tmp_path)},
        }
    }
    backend = charge_order.get_backend()
    assert isinstance(backend, FolderBackend)
    return backend


@pytest.fixture
def workers(transactional_db: None, tmp_path: Path) -> Iterator[Processes]:
    names = {"DJANGO_SETTINGS_MODULE": "tests.messages.settings", "TASKS_FOLDER": str(tmp_path)}
    with closing(Processes(tmp_path, **names)) as workers:
        yield workers


def worker(workers: Processes) -> subprocess.Popen[bytes]:
    return workers.start("-m", "tests.messages.tasks")


def await_ready(workers: Processes, backend: FolderBackend, count: int) -> None:
    workers.until(lambda: backend.ready() == count, f"{count} workers take tasks")


def await_runs(workers: Processes, backend: FolderBackend, result: Any, count: int) -> None:
    """Wait for the results of the runs: all have succeeded, with the number of the one charge."""
    workers.until(lambda: len(backend.runs(result)) == count, f"{count} runs have ended")
    runs = backend.runs(result)
    assert [error.traceback for run in runs for error in run.errors] == []
    assert [run.return_value for run in runs] == [Charge.objects.get().pk] * count


def assert_taken_over(workers: Processes, attempts: list[int]) -> None:
    (first, first_key), (second, second_key) = re.findall(
        r"attempt (\d), card key (\w{64})", workers.log
    )
    assert (first, second) == ("1", "2")
    assert first_key == second_key
    assert [effect.attempt for effect in Effect.objects.order_by("pk")] == attempts


@both
def test_killed_in_the_middle(
    task: Any,
    attempts: list[int],
    order: dict[str, Any],
    backend: FolderBackend,
    workers: Processes,
) -> None:
    """The next worker gets the task and takes over: one charge, and the same key for the card
    network.
    """
    result = task.enqueue(**order, card="tok_kill_once")
    assert worker(workers).wait(20) == -signal.SIGKILL, workers.log
    assert backend.runs(result) == []
    assert not Charge.objects.exists()
    assert Effect.objects.count() == len(attempts) - 1
    worker(workers)
    await_runs(workers, backend, result, 1)
    assert_taken_over(workers, attempts)


@both
def test_killed_while_another_waits(
    task: Any,
    attempts: list[int],
    order: dict[str, Any],
    backend: FolderBackend,
    workers: Processes,
) -> None:
    """Two workers got the task. The one that waited takes over, and succeeds."""
    couple = [worker(workers) for _ in range(2)]
    await_ready(workers, backend, 2)
    result = task.enqueue(**order, card="tok_kill_once")
    await_runs(workers, backend, result, 1)
    assert sorted(each.poll() is None for each in couple) == [False, True]
    assert_taken_over(workers, attempts)


@both
def test_at_the_same_time(
    task: Any,
    attempts: list[int],
    order: dict[str, Any],
    backend: FolderBackend,
    workers: Processes,
) -> None:
    """Two workers got the task: one runs, the other waits for it. Both succeed, with one result."""
    for _ in range(2):
        worker(workers)
    await_ready(workers, backend, 2)
    result = task.enqueue(**order, card="tok_slow")
    await_runs(workers, backend, result, 2)
    assert workers.log.count("Charging:") == 1
    assert Effect.objects.get().attempt == 1
