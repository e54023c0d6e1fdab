"""Plays a published scenario against a guarded view or function, and says what its authors would
miss.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings

from django_idempotency import idempotent, idempotent_function
from django_idempotency.contrib.batches.messages import disposition
from django_idempotency.core.dialects import Dialect
from django_idempotency.core.records import Outcome
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing import RecordingStore

from ...functions.helpers import MEMORY, Clock
from .anyonce import MARKER
from .steps import ANY, Scenario, Step, Wanted, Work


class AsTheyMarkIt(Dialect):
    marker = MARKER


#: How a call ends that raises nothing, and what a scenario writes for any other end.
RETURNED, AN_ERROR = "returned", "an error"
#: After so many failures a message is a dead letter.
LIMIT = 3
FACTORY = RequestFactory()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a step got."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    ending: str = RETURNED


class Play:
    """One scenario, being played: `complaints` has what its authors would miss, one sentence
    each.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.complaints: list[str] = []
        self.runs = 0
        self._clock = Clock()
        self._memory = MemoryStore(clock=self._clock)
        self._store = RecordingStore(self._memory)
        self._answers: list[Answer] = []
        self._failures = 0
        self._step = Step()
        self._answered = threading.Event()
        self._inner: threading.Thread | None = None

    def run(self) -> list[str]:
        """Play it, and return the complaints."""
        if self.scenario.lacks is not None:
            return [f"there is no {self.scenario.lacks}"]
        settings = {"STORES": {"default": MEMORY}, "GUARANTEE": "lease", "LEASE": 30}
        with override_settings(IDEMPOTENCY=settings), stores.replaced("default", self._store):
            for number, step in enumerate(self.scenario.steps, 1):
                self._play(step, number)
        return self.complaints

    def _play(self, step: Step, number: int) -> None:
        self._clock.go(step.after)
        if step.damaged:
            records = self._memory._records
            records |= {
                name: record._replace(outcome=Outcome(1)) for name, record in records.items()
            }
        self._step = step
        answers = [self.send(step)] if step.at_once == 1 else self._at_once(step)
        if self._inner is not None:
            self._inner.join(20)
            self._inner = None
        self._answers.append(answers[0])
        self._judge(step.wanted, answers, f"step {number}")

    def _at_once(self, step: Step) -> list[Answer]:
        answers: list[Answer] = []

        def send() -> None:
            answers.append(self.send(step))
            self._answered.set()

        threads = [threading.Thread(target=send) for _ in range(step.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return answers

    def send(self, step: Step) -> Answer:
        """Send the request, or call the function."""
        raise NotImplementedError

    def works(self) -> Work:
        """Count a run, and let happen what happens while it runs."""
        self.runs += 1
        step, inner = self._step, self._step.meanwhile
        if step.at_once > 1:
            assert self._answered.wait(20)
        if inner is not None:
            self._meanwhile(inner)
        return step.work

    def _meanwhile(self, inner: Step) -> None:
        self._clock.go(inner.after)
        self._step, done = inner, threading.Event()

        def send() -> None:
            answer = self.send(inner)
            self._judge(inner.wanted, [answer], "meanwhile")
            done.set()

        self._inner = threading.Thread(target=send)
        self._inner.start()
        if self.scenario.terms.get("wait", 0) < 1:
            assert done.wait(20)
        else:  # it waits for us: go on once it has asked
            while self._store.verbs.count("claim") < 2:
                assert not done.wait(0.001)

    def _judge(self, wanted: Wanted, answers: list[Answer], where: str) -> None:
        answer = answers[0]
        found = [
            ("status", wanted.status, answer.status),
            ("runs", wanted.runs, self.runs),
            ("body", wanted.body, answer.body),
            ("code", wanted.code, _code(answer) if wanted.code else None),
            ("ending", wanted.ending, answer.ending),
        ]
        self.complaints += [
            f"{where}: {name} {is_!r}, not {expected!r}"
            for name, expected, is_ in found
            if expected is not None
            and expected != is_
            and (expected != AN_ERROR or is_ == RETURNED)
        ]
        if wanted.length is not None and wanted.length != len(answer.body):
            self.complaints.append(f"{where}: the body does not have {wanted.length} characters")
        for name, value in wanted.headers.items():
            has = answer.headers.get(name.lower())
            if has != value and not (has and value == ANY):
                self.complaints.append(f"{where}: {name} {has!r}, not {value!r}")
        if wanted.contains is not None and wanted.contains not in answer.body:
            self.complaints.append(f"{where}: {wanted.contains!r} is not in the body")
        if wanted.same_as is not None and _essence(answer) != _essence(
            self._answers[wanted.same_as - 1]
        ):
            self.complaints.append(f"{where}: not the answer of step {wanted.same_as}")
        if wanted.identical and len(set(map(_essence, answers))) > 1:
            self.complaints.append(f"{where}: also {max(each.status or 0 for each in answers)}")


class OverHttp(Play):
    """A scenario of requests. Where the key is and what marks a replay is their choice, by a
    dialect.
    """

    def send(self, step: Step) -> Answer:
        headers = {"X-Client": step.caller, **({} if step.key is None else {step.header: step.key})}
        request = FACTORY.generic(
            step.method, "/", step.body, content_type="text/plain", headers=headers
        )
        terms = {
            "profile": AsTheyMarkIt(),
            "scope": lambda request: request.headers["X-Client"],
            **self.scenario.terms,
        }
        try:
            response = idempotent(**terms)(self._view)(request)
        except SystemExit:
            return Answer()
        found = {name.lower(): value for name, value in response.items()}
        if response.cookies:
            found["set-cookie"] = response.cookies.output(header="")
        return Answer(status=response.status_code, headers=found, body=response.content.decode())

    def _view(self, request: HttpRequest) -> HttpResponse:
        work = self.works()
        if work.raises is not None:
            raise work.raises
        body = request.body.decode() if work.body is None else work.body
        return HttpResponse(body, status=work.status, headers=dict(work.headers))


class InCalls(Play):
    """A scenario of messages or of tools: a guarded function, which a consumer calls or a model."""

    def __init__(self, scenario: Scenario, *, consumer: bool) -> None:
        super().__init__(scenario)
        self._consumer = consumer
        terms: dict[str, Any] = {"key": "message", **scenario.terms}

        @idempotent_function(key_prefix=scenario.name, **terms)
        def tool(
            message: str = "", origin: str = "", destination: str = "", request_id: str = ""
        ) -> Any:
            work = self.works()
            if work.raises is not None:
                raise work.raises
            return work.returns

        self._tool = tool

    def send(self, step: Step) -> Answer:
        call = (
            partial(self._tool, **step.arguments)
            if step.arguments
            else partial(self._tool, str(step.key))
        )
        error, result = None, None
        try:
            result = call()
        except Exception as raised:  # noqa: BLE001 - what becomes of it is the answer
            error = raised
        ending = type(error).__name__ if error else RETURNED
        if self._consumer:
            became = disposition(error, failures=self._failures, limit=LIMIT)
            self._failures = getattr(became, "failures", 0)
            ending = type(became).__name__
        return Answer(body=str(result), ending=ending)


def _code(answer: Answer) -> Any:
    return json.loads(answer.body).get("code") if answer.body.startswith("{") else None


def _essence(answer: Answer) -> tuple[Any, ...]:
    return answer.status, answer.body
