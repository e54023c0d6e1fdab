"""Many calls at one moment: threads around one store, and processes that each create the same store.

    python -m django_idempotency.testing.contract.workers

starts such a process. It exchanges pickles with its parent process on standard input and output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeVar
from uuid import uuid4

from ...core import rules
from ...core.records import Settlement, Ticket
from ...errors import LostRace
from ...stores.base import BaseStore

T = TypeVar("T")
#: What one of many does. To be picklable for another process, it is a function of a module, or a `partial` of one.
Act = Callable[[BaseStore], T]

#: Seconds until a missing participant is given up.
PATIENCE = 60
PROCESSES = 4


def claimed(ticket: Ticket, store: BaseStore) -> rules.Verdict:
    """Claim and read, as the engine does: after a lost race it tries once more, and is then busy."""
    for _ in range(2):
        try:
            return rules.read(store.claim(ticket), ticket)
        except LostRace:
            continue
    return rules.Busy(retry_after=1)


def settled(ticket: Ticket, settlement: Settlement, store: BaseStore) -> bool:
    """Settle. After a lost race nothing is settled."""
    try:
        return store.settle(ticket, settlement)
    except LostRace:
        return False


def together(store: BaseStore, acts: Sequence[Act[T]], *, when: Callable[[], None] = lambda: None) -> list[T]:
    """Run each act in its own thread. All are connected first, and released at one moment: when `when` returns."""
    ready, start = threading.Barrier(len(acts) + 1), threading.Barrier(len(acts) + 1)

    def run(act: Act[T]) -> T:
        try:
            store.get(uuid4())
            ready.wait(PATIENCE)
            start.wait(PATIENCE)
            return act(store)
        except BaseException:
            ready.abort()  # no thread is to wait for this one
            raise
        finally:
            store.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        running = [pool.submit(run, act) for act in acts]
        try:
            ready.wait(PATIENCE)
            when()
            start.wait(PATIENCE)
        except threading.BrokenBarrierError:
            start.abort()
        except BaseException:
            start.abort()
            raise
        errors = [error for each in running if (error := each.exception(PATIENCE)) is not None]
        for error in errors:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [each.result() for each in running]


@dataclass(frozen=True)
class Failed:
    """A failure in another process."""

    traceback: str


class Workers:
    """Processes that wait for work. They have this process's environment, settings and import path."""

    def __init__(self, size: int = PROCESSES) -> None:
        # A store has no verb that closes it permanently, so its connections end with the process.
        command = [sys.executable, "-W", "ignore::ResourceWarning", "-m", __name__]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(Path.cwd()), *sys.path)))}
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)  # noqa: S603
            for _ in range(size)
        ]

    def act(self, make: Callable[[], BaseStore], acts: Sequence[Act[T]]) -> list[T]:
        """Distribute the acts, release all at one moment, and return the result of each."""
        size = len(self._processes)
        shares = [(process, acts[number::size]) for number, process in enumerate(self._processes) if acts[number::size]]
        for process, share in shares:
            _send(process.stdin, (make, share))
        failed = [said for process, _ in shares if isinstance(said := _receive(process.stdout), Failed)]
        for process, _ in shares:
            _send(process.stdin, not failed)
        results: list[Any] = [None] * len(acts)
        for number, (process, _) in enumerate(shares):
            said = _receive(process.stdout)
            if isinstance(said, Failed):
                failed.append(said)
            else:
                results[number::size] = said
        assert not failed, "In another process:\n" + "\n".join(each.traceback for each in failed)
        return results

    def leave(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
        for process in self._processes:
            process.wait(PATIENCE)


def serve(commands: IO[bytes], answers: IO[bytes]) -> None:
    """Run each round until the input ends. A round: what to do, "ready", "go", the results."""
    while (command := _read(commands)) is not None:
        ready = False

        def when() -> None:
            nonlocal ready
            ready = True
            _send(answers, None)
            assert _receive(commands), "others could not begin"

        try:
            make, acts = pickle.loads(command)  # noqa: S301 - from our parent process
            said: Any = together(make(), acts, when=when)
        except Exception:  # noqa: BLE001 - reported to the parent process
            said = Failed(traceback.format_exc())
            if not ready:
                _send(answers, said)
                _receive(commands)
        _send(answers, said)


def _send(pipe: IO[bytes] | None, message: Any) -> None:
    assert pipe is not None
    packed = pickle.dumps(message)
    pipe.write(b"%d\n%b" % (len(packed), packed))
    pipe.flush()


def _read(pipe: IO[bytes] | None) -> bytes | None:
    assert pipe is not None
    size = pipe.readline()
    return pipe.read(int(size)) if size else None


def _receive(pipe: IO[bytes] | None) -> Any:
    packed = _read(pipe)
    if packed is None:
        raise EOFError("The other process has gone.")
    return pickle.loads(packed)  # noqa: S301 - from a process that we started


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed here is not a result
    if os.environ.get("DJANGO_SETTINGS_MODULE"):
        import django

        django.setup()
    # Import it by its name, so that what is unpickled here has the class that was pickled there.
    workers = import_module("django_idempotency.testing.contract.workers")
    with answers:
        workers.serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
