"""The shop of the tutorials: its files are written as the pages say, and its commands are run in a
real shell.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..support.services import answers
from .pages import DOCS, ROOT, Block, blocks, text

FIRST, BOOKING = DOCS / "tutorial" / "first-charge.md", DOCS / "tutorial" / "booking.md"
#: A file of the first tutorial: "This is `payments/models.py`:" and its code.
_GIVEN = re.compile(r"`(\w+/\w+\.py)`:\n\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: What differs from one run to the next, as the page shows it.
_VARIES = re.compile(r"[0-9a-f]{8}…|op_[a-z2-7]+")
#: Seconds within which a server listens, or does what the page shows.
PATIENCE = 60


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, and the output that the page shows for it."""

    line: int
    typed: str
    shown: str


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a console: each begins with a prompt, and its output follows.

    A \\ continues a line.
    """
    for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        typed, _, shown = part.partition("\n")
        while typed.endswith("\\"):
            further, _, shown = shown.partition("\n")
            typed = f"{typed}\n{further.removeprefix('> ')}"
        yield Command(block.line, typed, shown)


class Shop:
    """A project in a folder, and the shell in which its reader types. The servers listen on free
    ports.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._provider = free_port(), free_port()
        #: The functions that the reader's shell knows.
        self._defined = ""
        #: What was sent in the background.
        self._clients: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "DJANGO_SUPERUSER_PASSWORD": "pw",
            "no_proxy": "*",
        }

    def begin(self) -> None:
        """Write the project as the first tutorial leaves it, with its user."""
        self._run("django-admin startproject shop . && python manage.py startapp payments")
        for name, code in _GIVEN.findall(text(FIRST)):
            self._write(name, code, adds=name == "shop/settings.py")
        self._write("shop/settings.py", 'INSTALLED_APPS += ["django_idempotency"]\n', adds=True)
        self._run(
            "python manage.py makemigrations payments && python manage.py migrate --verbosity 0"
        )
        self._run(
            "python manage.py createsuperuser --username asha --email asha@example.com --noinput"
        )

    def play(self, *, until: str) -> None:
        """Do what the page of the booking says, up to a command.

        Raises `AssertionError` where it differs.
        """
        for block in blocks(BOOKING):
            if block.language == "python":
                self._edit(block.code)
            elif block.language == "shell":
                self._define(block.code)
            else:
                for command in commands(block):
                    if command.typed == until:
                        return
                    self._type(command)
        raise AssertionError(f"The page has no command {until!r}.")

    def stop(self) -> None:
        """Kill the servers, which cuts off the clients."""
        for file in self.folder.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        for client in self._clients:
            client.wait(PATIENCE)

    # ---------------------------------------------------------------------------------------- files

    def _edit(self, code: str) -> None:
        """Write a file that the first line of a block names; or append to it, or replace one
        step.
        """
        first, _, rest = code.partition("\n")
        name, _, place = first.removeprefix("# ").partition(", ")
        if not place or place == "at the end":
            self._write(name, rest, adds=bool(place))
            return
        step = re.search(r'"\w+"', place)
        assert step, f"{first!r} names neither a file nor a step"
        old = (self.folder / name).read_text(encoding="utf-8")
        new = re.sub(
            rf"^( +)\w+ = run\.step\({step[0]}.*\n", rf"\g<1>{rest}", old, flags=re.MULTILINE
        )
        assert new != old, f"{name} has no step {step[0]}"
        (self.folder / name).write_text(new, encoding="utf-8")

    def _write(self, name: str, code: str, *, adds: bool = False) -> None:
        with (self.folder / name).open("a" if adds else "w", encoding="utf-8") as file:
            file.write(self._moved(code))

    def _moved(self, code: str) -> str:
        """Put free ports in the place of those of the page."""
        code = code.replace("runserver --noreload", f"runserver --noreload {self.port}")
        return code.replace("localhost:8000", f"localhost:{self.port}").replace(
            "9000", str(self._provider)
        )

    # ------------------------------------------------------------------------------------- commands

    def _define(self, code: str) -> None:
        """Run lines of the shell, and keep what later commands know.

        What the page installs is installed.
        """
        for line in code.splitlines(keepends=True):
            if line.startswith("python "):
                self._run(line)
            elif found := re.match(r"(\w+)=", line):
                self._environment[found[1]] = self._run(f'{line} echo "${found[1]}"').strip()
            elif not line.startswith("pip "):
                self._defined += self._moved(line)

    def _type(self, command: Command) -> None:
        typed = command.typed
        if typed.startswith("sleep ") and (seconds := int(typed.split()[1])) >= 60:
            self._wait(seconds)
        elif typed.endswith("&"):
            self._start(typed)
        elif "> server.log" in typed or "> provider.log" in typed:
            self._run(typed)
            listening(self._provider if "provider" in typed else self.port)
        else:
            self._compare(command)
            if typed.startswith("kill ") and "server" in typed:
                listening(self.port, still=False)  # or the next one would find the port taken

    def _compare(self, command: Command) -> None:
        """Run a command, and compare its output. What happened elsewhere may take a moment."""
        pattern = "".join(
            part if number % 2 else re.escape(part)
            for number, part in enumerate(re.split(f"({_VARIES.pattern})", command.shown))
        )
        pattern = _VARIES.sub(
            lambda found: "op_[a-z2-7]+" if found[0].startswith("op_") else "[0-9a-f]+", pattern
        )
        until = time.monotonic() + PATIENCE
        while not re.fullmatch(pattern, done := self._run(command.typed)):
            waits = command.typed.startswith("curl ") and time.monotonic() < until
            assert waits, (
                f"booking.md:{command.line}: {command.typed}\n\n{done}\n\nand "
                f"not\n\n{command.shown}"
            )
            time.sleep(0.1)

    def _run(self, typed: str) -> str:
        done = subprocess.run(
            ["bash", "-c", self._defined + self._moved(typed)],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
        )
        return done.stdout

    def _start(self, typed: str) -> None:
        """Run a command in the background. Its client is cut off when the server is killed."""
        line = self._defined + self._moved(typed.removesuffix("&"))
        client = subprocess.Popen(
            ["bash", "-c", line], cwd=self.folder, env=self._environment, stdout=subprocess.DEVNULL
        )
        self._clients.append(client)

    def _wait(self, seconds: int) -> None:
        """Let time pass: set back when `idempotency_resume operations` looks, when calls were sent, and when
        leases of the dead end.
        """
        database = sqlite3.connect(self.folder / "db.sqlite3", timeout=PATIENCE)
        with database:
            back = f"-{seconds} seconds"
            for instant in ("created_at", "due_at"):
                database.execute(
                    f"UPDATE django_idempotency_step SET {instant} = datetime({instant}, ?)", [back]
                )
            database.execute(
                "UPDATE django_idempotency_outgoing_call SET last_sent = datetime(last_sent, ?)",
                [back],
            )
            database.execute(
                "UPDATE django_idempotency_record SET lease_until = datetime(lease_until, ?)",
                [back],
            )
        database.close()


@contextmanager
def opened(folder: Path) -> Iterator[Shop]:
    """Return the shop as the first tutorial leaves it, and kill its servers in the end."""
    shop = Shop(folder)
    shop.begin()
    try:
        yield shop
    finally:
        shop.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def listening(port: int, *, still: bool = True) -> None:
    """Return once a server listens, or no longer does. Raises `TimeoutError`."""
    until = time.monotonic() + PATIENCE
    while answers(port) is not still:
        if time.monotonic() > until:
            raise TimeoutError(f"Port {port} is {'closed' if still else 'open'}.")
        time.sleep(0.05)
