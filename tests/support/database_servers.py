"""PostgreSQL, PgBouncer, MariaDB and MySQL as servers of a test's own.

The first two do not start as root, so they run as Debian's `postgres` then.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .services import program
from .store_servers import Server, running

USER = "postgres" if os.geteuid() == 0 else None


class PostgreSQLServer(Server):
    """A new cluster that trusts everybody and flushes nothing. `programs` is the folder of initdb
    and postgres.
    """

    user = USER

    def __init__(self, folder: Path, programs: Path, *settings: str) -> None:
        super().__init__()
        self.folder = folder
        self._data, self._programs = folder / "data", programs
        self._settings = [
            argument for setting in ("fsync=off", *settings) for argument in ("-c", setting)
        ]

    def initialise(self) -> None:
        command = [
            str(self._programs / "initdb"),
            f"--pgdata={self._data}",
            "--username=postgres",
            "--auth=trust",
        ]
        command += ["--no-sync", "--encoding=UTF8", "--locale=C"]
        subprocess.run(
            command,
            cwd="/",
            user=self.user,
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def command(self) -> list[str]:
        listens = [
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-p",
            str(self.port),
        ]
        return [str(self._programs / "postgres"), "-D", str(self._data), *listens, *self._settings]

    def answers(self) -> bool:
        return answers(self.port)

    def kill(self) -> None:
        """End at once, with the processes of its sessions."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.send_signal(signal.SIGQUIT)
                self._process.wait(10)
        super().kill()


class MariaDBServer(Server):
    """A new MariaDB that trusts everybody. It has no tables of its own."""

    def __init__(self, folder: Path, *settings: str) -> None:
        super().__init__()
        self._folder, self._settings = folder, [f"--{setting}" for setting in settings]
        (folder / "data").mkdir()

    def command(self) -> list[str]:
        path = program("mariadbd")
        assert path is not None, "MariaDB's server is not installed"
        places = [
            f"--datadir={self._folder / 'data'}",
            f"--socket={self._folder / 'socket'}",
            f"--port={self.port}",
        ]
        bare = [
            "--no-defaults",
            f"--user={getpass.getuser()}",
            "--bind-address=127.0.0.1",
            "--skip-grant-tables",
        ]
        return [path, *bare, *places, "--innodb-buffer-pool-size=16M", *self._settings]

    def answers(self) -> bool:
        return innodb_answers(self.port)


class MySQLServer(Server):
    """A new MySQL whose root needs no password, and whose database is `test`.

    `inside` returns the command that runs another where the program is, to which `folder` is known
    by that name.
    """

    def __init__(self, folder: str, inside: Callable[..., list[str]], *settings: str) -> None:
        super().__init__()
        self._folder, self._inside, self._settings = folder, inside, settings

    def _mysqld(self, *options: str) -> list[str]:
        bare = ["mysqld", "--no-defaults", "--user=root", "--secure-file-priv=NULL"]
        return self._inside(*bare, f"--datadir={self._folder}/data", *options)

    def initialise(self) -> None:
        command = self._mysqld("--initialize-insecure")
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)

    def command(self) -> list[str]:
        socket = f"--socket={self._folder}/socket"
        own = ["--bind-address=127.0.0.1", f"--port={self.port}", "--mysqlx=0", socket]
        return self._mysqld(*own, "--skip-log-bin", *self._settings)

    def answers(self) -> bool:
        return innodb_answers(self.port)


class PgBouncer(Server):
    """PgBouncer in front of a PostgreSQL server, whose databases have the same names there."""

    user = USER

    def __init__(
        self, folder: Path, *, host: str, port: str, user: str, password: str, pool_mode: str
    ) -> None:
        super().__init__()
        self._file, users = folder / "pgbouncer.ini", folder / "users.txt"
        users.write_text(f'"{user}" "{password}"\n', encoding="utf-8")
        self._file.write_text(
            f"[databases]\n* = host={host} port={port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\nadmin_users = {user}\n"
            f"pool_mode = {pool_mode}\ndefault_pool_size = 60\nmax_client_conn = 500\n",
            encoding="utf-8",
        )
        if USER is not None:
            shutil.chown(users, USER)
            shutil.chown(self._file, USER)

    def command(self) -> list[str]:
        path = program("pgbouncer")
        assert path is not None, "pgbouncer is not installed"
        return [path, "-q", str(self._file)]

    def answers(self) -> bool:
        return answers(self.port)

    def version(self) -> str:
        done = subprocess.run(
            [self.command()[0], "--version"], capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.splitlines()[0]


@contextmanager
def postgresql(programs: Path, *settings: str) -> Iterator[PostgreSQLServer]:
    """Run a new PostgreSQL. Raises `CalledProcessError` if initdb fails."""
    with private_folder() as folder:
        server = PostgreSQLServer(folder, programs, *settings)
        server.initialise()
        with running(server):
            yield server


@contextmanager
def mariadb(*settings: str) -> Iterator[MariaDBServer]:
    """Run a new MariaDB."""
    with (
        tempfile.TemporaryDirectory() as name,
        running(MariaDBServer(Path(name), *settings)) as server,
    ):
        yield server


@contextmanager
def mysql(root: Path, inside: Callable[..., list[str]], *settings: str) -> Iterator[MySQLServer]:
    """Run a new MySQL of a folder that is the root of its file system.

    Raises `CalledProcessError` if it cannot make its files.
    """
    import pymysql

    with tempfile.TemporaryDirectory(dir=root / "srv") as name:
        server = MySQLServer(f"/srv/{Path(name).name}", inside, *settings)
        server.initialise()
        with running(server):
            session = pymysql.connect(host="127.0.0.1", port=server.port, user="root")
            with session, session.cursor() as cursor:
                cursor.execute("CREATE DATABASE test")
            yield server


@contextmanager
def pgbouncer(
    *, host: str, port: str, user: str, password: str = "", pool_mode: str = "transaction"
) -> Iterator[PgBouncer]:
    """Run PgBouncer in front of a PostgreSQL server.

    When it ends, its connections to that server end, too.
    """
    with private_folder() as folder:
        server = PgBouncer(
            folder, host=host, port=port, user=user, password=password, pool_mode=pool_mode
        )
        with running(server):
            yield server


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder that such a server may write to, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        if USER is not None:
            shutil.chown(name, USER)
        yield Path(name)


def innodb_answers(port: int) -> bool:
    """Does a MariaDB or MySQL respond on a port?"""
    import pymysql

    with suppress(pymysql.Error):
        pymysql.connect(host="127.0.0.1", port=port, user="root", connect_timeout=1).close()
        return True
    return False


def answers(port: int) -> bool:
    """Does a database "postgres" respond on a port?"""
    import psycopg

    with (
        suppress(psycopg.Error),
        psycopg.connect(
            host="127.0.0.1", port=port, user="postgres", dbname="postgres", connect_timeout=1
        ) as session,
    ):
        return session.execute("SELECT 1").fetchone() == (1,)
    return False
