"""Faults on demand: a test plans what happens to a key, and the process that gets there carries it
out, once.

Files in one folder carry the plan to whichever process serves the request, and the news back:
`<key>.<point>.plan` holds the act and a number, under which `reached` says which process and
database session got there and `go` ends a pause; `<key>.lost` says that our signal `lost` was sent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: The points at which a request can be met, in the order in which it reaches them.
POINTS = (
    "asking",  # in OnTakeover
    "claimed",  # the claim is committed, the guard is not open
    "guarded",  # the record is locked
    "writing",  # before the view's first write
    "viewing",  # in the view, between its writes
    "written",  # after the view's last write
    "settling",  # the view has responded, and nothing is stored
    "settled",  # the response is stored; with `atomic`, in the transaction
    "committing",  # just before COMMIT
    "committed",  # just after COMMIT
)
#: What may happen there.
ACTS = ("kill", "stop", "pause")

FOLDER = "FAULTS_FOLDER"
#: Where Linux says what its processes are doing.
PROCESSES = Path("/proc")
POLL = 0.01
#: Nothing that a test waits for takes as long.
PATIENCE = 30

#: Seconds: long enough to look at while it holds, short enough to wait for its end.
LEASE = 3
#: Long enough for a database to go away and return in the meantime, even on a busy machine.
LONG_LEASE = 20
#: For stores whose records the test does not inspect.
SHORT_LEASE = 2
#: Longer than any test: what waits for it never ends.
ENDLESS = 600


def until(check: Callable[[], object], what: str, *, patience: float = PATIENCE) -> None:
    """Poll. Raises a `TimeoutError` that says what did not happen."""
    deadline = time.monotonic() + patience
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Not within {patience} s: {what}.")
        time.sleep(POLL)


def news(key: str, *kind: str) -> Path:
    return Path(os.environ[FOLDER]) / ".".join([key, *kind])


def write(path: Path, text: str) -> None:
    """Write a file that is never seen half written."""
    draft = path.with_suffix(f".draft-{os.getpid()}-{time.monotonic_ns()}")
    draft.write_text(text)
    draft.rename(path)


def reach(point: str, key: str, *, session: int = 0) -> None:
    """Do what is planned for this point, if anything."""
    if (fault := taken(point, key)) is None:
        return
    fault.tell_reached(session)
    if fault.act != "pause":
        os.kill(os.getpid(), signal.SIGKILL if fault.act == "kill" else signal.SIGSTOP)
    # A pause is needed as well: SIGSTOP stops the threads of a process one after the other, and
    # this one may be the last.
    until(fault.may_go_on, f"{key} may go on")


async def areach(point: str, key: str) -> None:
    """See reach(). Other requests of the process continue."""
    if (fault := taken(point, key)) is not None:
        fault.tell_reached(0)
        if fault.act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        while not fault.may_go_on():  # noqa: ASYNC110 - another process ends it
            await asyncio.sleep(POLL)


def taken(point: str, key: str) -> Fault | None:
    """Return what is planned here, to the first caller only."""
    plan = news(key, point, "plan")
    try:
        act, serial = plan.read_text().split()
        plan.rename(news(key, point, serial, "taken"))
    except FileNotFoundError:
        return None
    return Fault(key, point, act, serial)


@dataclass(frozen=True)
class Fault:
    """The plan for one key at one point."""

    key: str
    point: str
    act: str
    serial: str

    def _news(self, kind: str) -> Path:
        return news(self.key, self.point, self.serial, kind)

    def tell_reached(self, session: int) -> None:
        write(self._news("reached"), f"{os.getpid()} {session}")

    def may_go_on(self) -> bool:
        return self._news("go").exists()

    # ---------------------------------------------------------------------------------- in the test

    def plan(self) -> Fault:
        assert self.point in POINTS
        assert self.act in ACTS
        write(news(self.key, self.point, "plan"), f"{self.act} {self.serial}")
        return self

    def await_reached(self) -> Fault:
        """Wait until the process got there, and is stopped or dead if planned."""
        until(self._news("reached").exists, f"{self.key} has reached {self.point!r}")
        if self.act == "stop":
            until(lambda: state(self.pid).startswith("T"), f"process {self.pid} stands still")
        if self.act == "kill":
            until(lambda: state(self.pid)[:1] in ("", "Z"), f"process {self.pid} is dead")
        return self

    @property
    def pid(self) -> int:
        return int(self._news("reached").read_text().split()[0])

    @property
    def session(self) -> int:
        """Return the database session that serves the request."""
        return int(self._news("reached").read_text().split()[1])

    def go_on(self) -> None:
        """End the pause or the stop."""
        self._news("go").touch()
        if self.act == "stop" and self._news("reached").exists():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)


def state(pid: int) -> str:
    """Return the system's state of a process: `T` is stopped, `Z` a zombie, empty is no process."""
    if (PROCESSES / "self").exists():  # a process per look would keep a core busy
        try:
            return (PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return ""
    done = subprocess.run(
        ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


class Faults:
    """All faults of one test. At its end nothing is left waiting."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []

    def __call__(self, key: str, point: str, act: str) -> Fault:
        self._planned.append(Fault(key, point, act, str(len(self._planned))).plan())
        return self._planned[-1]

    def end(self) -> None:
        for fault in self._planned:
            news(fault.key, fault.point, "plan").unlink(missing_ok=True)
            fault.go_on()


def lost() -> set[str]:
    """Return the keys whose owners were notified of their loss."""
    return {path.stem for path in Path(os.environ[FOLDER]).glob("*.lost")}
