"""A step as a block: `with ….step("charge") as step: if not step.done: step.result = provider.charge(key=step.key)`."""

from __future__ import annotations

from contextvars import Token
from typing import Any

from ...errors import ConfigurationError
from ...runtime.current_step import CURRENT_STEP, RunningStep
from .actions import Actions, adrive, drive
from .one_step import OneStep


class Block:
    """What both kinds of block share."""

    def __init__(self, step: OneStep) -> None:
        self._step = step
        self._result: Any = None
        self._token: Token[RunningStep | None] | None = None

    @property
    def done(self) -> bool:
        """Has an earlier attempt done it? Then `result` is what it stored."""
        return self._current.done

    @property
    def key(self) -> str:
        """The step's key, 64 hex digits: the same on every attempt."""
        return self._current.running.key

    @property
    def result(self) -> Any:
        """What the step stored. After the block: the stored form of what it set."""
        return self._result

    @result.setter
    def result(self, value: Any) -> None:
        if self.done:
            raise ConfigurationError(
                f"The step {self._step.terms.name!r} is done: ask `if not step.done` before its work."
            )
        self._result = value

    @property
    def _current(self) -> OneStep:
        assert self._step.position, "inside the with block"
        return self._step

    def _begin(self) -> Actions[None]:
        yield from self._step.begin()
        if self.done:
            self._result = self._step.result
        else:
            self._token = CURRENT_STEP.set(self._step.running)

    def _end(self, error: BaseException | None) -> Actions[bool]:
        """Return whether an exception does not count, because another owner was faster."""
        if self._token is None:
            return False
        CURRENT_STEP.reset(self._token)
        if error is None:
            self._result = yield from self._step.finish(self._result)
        elif (yield from self._step.fail(error)):
            self._result = self._step.result
            return True
        return False


class StepBlock(Block):
    """A step as a `with` block."""

    def __enter__(self) -> StepBlock:  # noqa: PYI034 - Python 3.10 has no Self
        drive(self._begin())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return drive(self._end(error))


class AsyncStepBlock(Block):
    """A step as an `async with` block."""

    async def __aenter__(self) -> AsyncStepBlock:  # noqa: PYI034 - as above
        await adrive(self._begin())
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return await adrive(self._end(error))
