"""What it takes: the runner from npm, pinned, and a seller over real HTTP."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ....support import services
from ....support.store_servers import Server, running
from ...environments import ROOT, install_node, of_project

HERE = Path(__file__).resolve().parent
NODE = ROOT / ".cache" / "adcp"
#: Seconds for an installation.
LIMIT = 480
DJANGO = [sys.executable, "-m", "django"]


def build() -> Path:
    """Install the runner, unless it is there, and return where. Raises `Unavailable`."""
    install_node(NODE, HERE / "package.json", time.monotonic() + LIMIT)
    return NODE / "node_modules"


class Seller(Server):
    """The project with an empty database."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def environment(self) -> dict[str, str]:
        return of_project("tests.proofs.commerce.adcp.settings", self._folder)

    def start(self) -> None:
        migrate = [*DJANGO, "migrate", "--run-syncdb", "--skip-checks", "--verbosity=0"]
        subprocess.run(migrate, cwd=ROOT, env=self.environment(), check=True)
        super().start()

    def command(self) -> list[str]:
        return [*DJANGO, "runserver", f"127.0.0.1:{self.port}", "--noreload", "--skip-checks"]

    def answers(self) -> bool:
        return services.answers(self.port)


@contextmanager
def serving() -> Iterator[str]:
    """Serve the seller until the end, and return the address of its MCP endpoint."""
    with tempfile.TemporaryDirectory() as folder, running(Seller(folder)) as seller:
        yield f"http://127.0.0.1:{seller.port}/mcp"
