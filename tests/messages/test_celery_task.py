"""The recipe's task class without a broker: what a task decides for itself, and eager tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Ignore, Reject, Retry, TaskPredicate
from celery.worker.request import Context

from django_idempotency.errors import InProgress, RequestMismatch
from testproject.celery import FAILURES, MessageTask
from testproject.payments.network import NetworkDown


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("recipe", task_cls=MessageTask, broker="memory://", set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, app: Celery) -> list[Any]:
    """Return the messages that are sent from now on."""
    sent: list[Any] = []
    monkeypatch.setattr(app.amqp, "send_task_message", lambda *args, **options: sent.append(args))
    return sent


def deliver(task: Any, **headers: Any) -> type[Exception]:
    """Let a worker take the task's message. Return what it raises."""
    task.push_request(
        **vars(
            Context(id="1", called_directly=False, delivery_info={}, args=(), kwargs={}, **headers)
        )
    )
    try:
        with pytest.raises((TaskPredicate, NetworkDown)) as raised:
            task()
    finally:
        task.pop_request()
    return raised.type


def test_autoretry_sends_one_message(app: Celery, sent: list[Any]) -> None:
    """A task that retries itself has decided: a second copy would add one more at every failure."""

    @app.task(shared=False, autoretry_for=(NetworkDown,), max_retries=3, retry_backoff=True)
    def charge() -> None:
        raise NetworkDown

    assert deliver(charge) is Retry
    assert len(sent) == 1


def test_a_retry_by_hand_sends_one_message(app: Celery, sent: list[Any]) -> None:
    @app.task(shared=False, bind=True)
    def charge(self: Any) -> None:
        raise self.retry(countdown=60)

    assert deliver(charge) is Retry
    assert len(sent) == 1


def test_what_comes_back_has_its_headers(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """So do the project's own headers, such as a tenant or a trace: without them another tenant
    would be charged.
    """
    came_back: list[Any] = []
    monkeypatch.setattr(
        app, "send_task", lambda *_, **options: came_back.append(options["headers"])
    )

    @app.task(shared=False)
    def charge() -> None:
        raise NetworkDown

    assert deliver(charge, tenant="shop") is Retry
    assert deliver(charge, **came_back[0]) is Retry
    assert came_back == [{"tenant": "shop", FAILURES: 1}, {"tenant": "shop", FAILURES: 2}]


@pytest.mark.parametrize("decided", [Ignore, Reject])
def test_what_a_task_decides_stands(app: Celery, sent: list[Any], decided: type[Exception]) -> None:
    @app.task(shared=False)
    def charge() -> None:
        raise decided

    assert deliver(charge) is decided
    assert sent == []


@pytest.mark.parametrize("error", [NetworkDown, InProgress, RequestMismatch])
def test_an_eager_task_raises_what_it_raises(
    app: Celery, sent: list[Any], error: type[Exception]
) -> None:
    """Without a message nothing waits or counts: the task would be called again at once, without
    end.
    """
    calls = []

    @app.task(shared=False)
    def charge() -> None:
        calls.append(1)
        raise error

    result = charge.apply()
    assert isinstance(result.result, error)
    assert len(calls) == 1
