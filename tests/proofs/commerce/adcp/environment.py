"""What it takes: the runner from npm, pinned, and a seller over real HTTP."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...environments import ROOT, Unavailable, call, is_outdated, note

HERE = Path(__file__).resolve().parent
NODE = ROOT / ".cache" / "adcp"
PACKAGE = HERE / "package.json"
#: Seconds for an installation, and until the seller is up.
LIMIT, UP = 480, 30


def build() -> Path:
    """Install the runner, unless it is there, and return where. Raises `Unavailable`."""
    if is_outdated(NODE, PACKAGE):
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            raise Unavailable("Install Node.js with npm: the runner of AdCP's storyboards is for it.")
        shutil.rmtree(NODE, ignore_errors=True)
        NODE.mkdir(parents=True)
        shutil.copy(PACKAGE, NODE)
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        call(
            [npm, "install", "--prefix", str(NODE), *options],
            time.monotonic() + LIMIT,
            "The runner cannot be installed",
        )
        note(NODE, PACKAGE)
    return NODE / "node_modules"


@contextmanager
def serving() -> Iterator[str]:
    """Serve the seller with an empty database until the end, and return the address of its MCP endpoint."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        probe.close()
        variables = {
            **os.environ,
            "ADCP_DATABASE": f"{folder}/db.sqlite3",
            "DJANGO_SETTINGS_MODULE": "tests.proofs.commerce.adcp.settings",
            "PYTHONPATH": str(ROOT),
        }
        django = [sys.executable, "-m", "django"]
        migrate = [*django, "migrate", "--run-syncdb", "--skip-checks", "--verbosity=0"]
        subprocess.run(migrate, cwd=ROOT, env=variables, check=True)
        serve = [*django, "runserver", f"127.0.0.1:{port}", "--noreload", "--skip-checks"]
        with Path(folder, "log").open("w") as log:
            server = subprocess.Popen(serve, cwd=ROOT, env=variables, stdout=log, stderr=log)
        try:
            _await(port, server)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()
            server.wait()


def _await(port: int, server: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + UP
    while time.monotonic() < ends and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise Unavailable("The seller does not start.")
