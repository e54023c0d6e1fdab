"""Valkey, Redis Cluster and Sentinel; the last two also with a primary that is killed under
load.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from ...support.store_servers import RedisServer, running
from . import obtaining
from .running import Result, run

CASES = "tests/proofs/reach/cases"
#: What the fail-overs have measured. A run shows it at its end.
FIGURES = obtaining.CACHE / "figures.txt"
OPTIONS = ("-p", "no:randomly")


class OtherServer(RedisServer):
    """A server of another program than the machine's own."""

    def __init__(self, folder: Path, program: str) -> None:
        super().__init__(folder)
        self._program = program

    def program(self) -> str:
        return self._program


def on_one(program: str) -> Result:
    """Run the store's tests on one server, and on those of the same program that tests kill."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(OtherServer(Path(folder), program)) as server,
    ):
        environment = {"DATABASE": "sqlite", "REDIS_URL": server.url, "REDIS_SERVER": program}
        counts = run(
            ["tests/stores/redis", "tests/stores/test_store_faults.py"],
            environment,
            *OPTIONS,
            "-k",
            "not dynamodb and not tls",  # not every build has TLS
        )
        return Result(version=version(program), counts=counts)


def on_valkey() -> Result:
    return on_one(str(obtaining.valkey()))


def in_a_group(kind: str) -> Result:
    """Run the contract and the fail-overs of `kind`: "cluster" or "sentinel"."""
    program = str(obtaining.debian("redis-server", "redis-server"))
    environment = {"DATABASE": "sqlite", "REDIS_SERVER": program, "REACH_FIGURES": str(FIGURES)}
    paths = [f"{CASES}/contract.py", f"{CASES}/failover.py"]
    return Result(version=version(program), counts=run(paths, environment, *OPTIONS, "-k", kind))


def version(program: str) -> str:
    """Return a server's name and version: "Redis server v=7.0.15 sha=…" says too much."""
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=10, check=True
    )
    name, _, rest = done.stdout.partition(" server v=")
    return f"{name} {rest.split()[0]}"
