"""Two PostgreSQLs, a primary and a synchronous standby: each failover kills the primary for good."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from ...support.database_servers import USER, PostgreSQLServer, private_folder
from ...support.store_servers import free_port

#: Seconds for a standby to follow, or to become the primary.
LIMIT = 60.0


class Standby(PostgreSQLServer):
    """A copy of a primary, which follows it."""

    def __init__(
        self, folder: Path, programs: Path, *settings: str, primary: PostgreSQLServer, port: int
    ) -> None:
        super().__init__(folder, programs, *settings)
        self.port = port
        self._primary = primary

    def initialise(self) -> None:
        """Copy the primary as it is, with the settings by which it is followed from there on."""
        command = [
            str(self._programs / "pg_basebackup"),
            f"--pgdata={self._data}",
            f"--dbname=host=127.0.0.1 port={self._primary.port} user=postgres",
            "--checkpoint=fast",
            "--no-sync",
            "--write-recovery-conf",
        ]
        subprocess.run(
            command, cwd="/", user=USER, check=True, capture_output=True, text=True, timeout=LIMIT
        )


class Pair:
    """A primary whose every COMMIT waits until the standby has it, so that a failover loses nothing.

    Its two ports stay: libpq finds the one that may write.
    """

    def __init__(self, folder: Path, programs: Path, *settings: str) -> None:
        self._folder = folder
        self._programs = programs
        self._settings = (*settings, "hot_standby=on", "synchronous_standby_names=*")
        self._made = 0
        self._primary = PostgreSQLServer(self._place(), programs, *self._settings)
        self._standby = self._copy(self._primary, free_port())

    def start(self) -> None:
        self._primary.initialise()
        self._primary.start()
        self._follow()

    @property
    def place(self) -> dict[str, str]:
        """HOST, PORT and OPTIONS of Django's DATABASES."""
        ports = sorted([self._primary.port, self._standby.port])
        return {
            "HOST": "127.0.0.1,127.0.0.1",
            "PORT": ",".join(map(str, ports)),
            "OPTIONS": '{"target_session_attrs": "read-write", "connect_timeout": 5}',
        }

    def restart(self) -> None:
        """Fail over: the primary is killed, its files are gone, and the standby is promoted. A new
        standby takes the place of the old primary.
        """
        dead = self._primary
        dead.kill()
        shutil.rmtree(dead.folder)
        self._primary = self._standby
        with self._session(self._primary) as session:
            session.execute("SELECT pg_promote(wait => true)")
        self._standby = self._copy(self._primary, dead.port)
        self._follow()

    def end(self) -> None:
        # In this order: a primary without its standby would wait for it.
        self._primary.kill()
        self._standby.kill()

    def _copy(self, primary: PostgreSQLServer, port: int) -> Standby:
        return Standby(self._place(), self._programs, *self._settings, primary=primary, port=port)

    def _follow(self) -> None:
        """Let the standby follow the primary."""
        self._standby.initialise()
        self._standby.start()
        deadline = time.monotonic() + LIMIT
        following = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        with self._session(self._primary) as session:
            while session.execute(following).fetchone() != (1,):
                assert time.monotonic() < deadline, "The standby does not follow."
                time.sleep(0.05)

    def _place(self) -> Path:
        """Make a folder for one more server."""
        self._made += 1
        place = self._folder / str(self._made)
        place.mkdir()
        if USER is not None:
            shutil.chown(place, USER)
        return place

    @staticmethod
    def _session(server: PostgreSQLServer) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1", port=server.port, user="postgres", dbname="postgres", autocommit=True
        )


@contextmanager
def pair(programs: Path, *settings: str) -> Iterator[Pair]:
    """Run a primary and its standby."""
    with private_folder() as folder:
        both = Pair(folder, programs, *settings)
        try:
            both.start()
            yield both
        finally:
            both.end()
