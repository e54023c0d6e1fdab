"""Celery: `celery --app testproject worker`.

A task may be delivered twice, but has its effect once.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, Task
from celery.exceptions import Reject, TaskPredicate
from celery.signals import worker_init
from kombu import Queue

from django_idempotency.contrib.batches.messages import (
    Acknowledge,
    DeadLetter,
    Redeliver,
    disposition,
)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

#: Our header on a message that returns: how often its task has failed.
FAILURES = "x-failures"


class MessageTask(Task):
    """A task whose message is done with when its effect is there, and not before.

    The task itself is an `idempotent_function`; here its errors become what Celery knows: retry or
    reject.
    """

    acks_late = True  # who dies in the middle has acknowledged nothing
    reject_on_worker_lost = True  # also when only a child of the worker died
    acks_on_timeout = False  # nor when a hard time limit killed it
    max_retries = None  # the table decides
    #: Exceptions that are as good as a result: those of keep_exceptions.
    answers: tuple[type[Exception], ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.request.called_directly or self.request.is_eager:  # not from a message
            return self.run(*args, **kwargs)
        try:
            return self.run(*args, **kwargs)
        except TaskPredicate:  # Retry, Reject, Ignore: the task has decided, autoretry_for perhaps
            raise
        except Exception as error:
            failures = int(self.request.get(FAILURES, 0))
            match disposition(error, failures=failures, answers=self.answers):
                case Acknowledge():
                    raise
                case Redeliver(after=after, failures=failures):
                    # The sender's own: a tenant, a trace.
                    kept = self.request.as_execution_options()["headers"] or {}
                    headers = {**kept, FAILURES: failures}
                    raise self.retry(exc=error, countdown=after, headers=headers) from error
                case DeadLetter():
                    raise Reject(error, requeue=False) from error


app = Celery("testproject", task_cls=MessageTask)
app.config_from_object("django.conf:settings", namespace="CELERY")

DEAD = Queue("celery.dead", queue_arguments={"x-queue-type": "quorum"})
app.conf.task_queues = [
    Queue(
        "celery",
        queue_arguments={
            "x-queue-type": "quorum",
            # a message that kills its worker more often is a dead letter, too
            "x-delivery-limit": 10,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": DEAD.name,
            # the default may lose one when the broker dies
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",  # required by that strategy
        },
    )
]


@worker_init.connect
def declare_dead_letters(**_: Any) -> None:
    with app.pool.acquire() as connection:
        DEAD.bind(connection).declare()


app.autodiscover_tasks()
