"""Tasks that outlive their process: a backend of django.tasks that keeps them in a folder, and a
worker for it.

    python -m tests.messages.tasks

Neither Django nor the backport has one. This one delivers as often as "at least once" allows: until
a task has ended, every worker gets it. Files carry the tasks, and the news back: `<id>.task`,
`<id>.<worker>.run` for each run, and `<worker>.ready` from each worker that takes tasks.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from traceback import format_exception
from typing import Any

import django
from django.utils.module_loading import import_string

from ..faults.plans import POLL, write

try:
    from django.tasks import TaskResult, TaskResultStatus, default_task_backend
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
except ImportError:  # Django 5.2
    from django_tasks import TaskResult, TaskResultStatus, default_task_backend  # type: ignore[assignment]
    from django_tasks.backends.base import BaseTaskBackend  # type: ignore[assignment]
    from django_tasks.base import TaskError  # type: ignore[assignment]


class FolderBackend(BaseTaskBackend):
    supports_async_task = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._folder = Path(self.options["folder"])
        self._worker = str(os.getpid())

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.validate_task(task)
        status, id_ = TaskResultStatus.READY, uuid.uuid4().hex
        result = self._result(
            task, id=id_, status=status, args=list(args), kwargs=kwargs, errors=[], worker_ids=[]
        )
        message = {"task": task.module_path, "args": result.args, "kwargs": result.kwargs}
        write(self._folder / f"{result.id}.task", json.dumps(message))
        return result

    def runs(self, result: Any) -> list[Any]:
        """Return a result for each run that has ended."""
        return [self._ended(result, path) for path in self._folder.glob(f"{result.id}.*.run")]

    def ready(self) -> int:
        """Count the workers that take tasks."""
        return len(list(self._folder.glob("*.ready")))

    def _ended(self, result: Any, path: Path) -> Any:
        run = json.loads(path.read_text())
        ended = self._result(
            result.task,
            id=result.id,
            status=TaskResultStatus.FAILED if run["errors"] else TaskResultStatus.SUCCESSFUL,
            args=result.args,
            kwargs=result.kwargs,
            errors=[TaskError(**error) for error in run["errors"]],
            worker_ids=[path.name.split(".")[1]],
        )
        # As Django's own backends do.
        object.__setattr__(ended, "_return_value", run["return_value"])
        return ended

    def _result(self, task: Any, **known: Any) -> Any:
        unknown = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
        return TaskResult(task=task, backend=self.alias, **{**unknown, **known})

    # -------------------------------------------------------------------------------- in the worker

    def work(self) -> None:
        """Run each task that has not ended once, until killed."""
        taken = set()
        (self._folder / f"{self._worker}.ready").touch()
        while True:
            for path in self._folder.glob("*.task"):
                if path not in taken and not any(self._folder.glob(f"{path.stem}.*.run")):
                    taken.add(path)
                    self._run(path)
            time.sleep(POLL)

    def _run(self, path: Path) -> None:
        message = json.loads(path.read_text())
        value, errors = None, []
        try:
            value = import_string(message["task"]).call(*message["args"], **message["kwargs"])
        except Exception as error:  # noqa: BLE001 - any exception is the outcome of the run
            name = f"{type(error).__module__}.{type(error).__qualname__}"
            errors = [{"exception_class_path": name, "traceback": "".join(format_exception(error))}]
        write(
            path.with_suffix(f".{self._worker}.run"),
            json.dumps({"return_value": value, "errors": errors}),
        )


if __name__ == "__main__":
    django.setup()
    default_task_backend.work()  # type: ignore[attr-defined]
