"""MariaDB and Redis as Debian's unstable suite has them, started by that suite's own loader."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql

from ...support.database_servers import MariaDBServer
from ...support.store_servers import running
from .databases import OPTIONS, TESTS
from .obtaining import CACHE, call
from .redis_servers import on_one
from .running import Result, of_database, run
from .unstable import inside, unstable

#: Where libraries are below the root of a Debian.
LIBRARIES = "usr/lib/x86_64-linux-gnu"
#: What MariaDB's server needs. It is unpacked, and not installed: MySQL's is in its place.
MARIADB = (
    *("mariadb-server-core", "libaio1t64", "libfmt10", "libpcre2-8-0", "libpmem1"),
    *("libsnappy1v5", "liburing2"),
)


def starter(root: Path, program: Path, *libraries: Path) -> Path:
    """Return a script that starts a program of another Debian here, with that one's libraries."""
    path = ":".join(map(str, (*libraries, root / LIBRARIES)))
    script = CACHE / f"{program.name}-of-unstable"
    script.write_text(
        "#!/bin/sh\n"
        f"exec {root}/lib64/ld-linux-x86-64.so.2 --argv0 {program.name} --library-path {path} "
        f'{program} "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


class NewerMariaDB(MariaDBServer):
    def __init__(self, folder: Path, unpacked: Path, start: Path) -> None:
        share = unpacked / "usr" / "share" / "mysql"
        super().__init__(
            folder,
            "max-connections=300",
            "innodb-flush-log-at-trx-commit=2",
            f"lc-messages-dir={share}",
            f"character-sets-dir={share}/charsets",
            f"plugin-dir={unpacked}/usr/lib/mysql/plugin",
        )
        self._start = start

    def command(self) -> list[str]:
        _, *options = super().command()
        return [str(self._start), *options]


@contextmanager
def newer_mariadb() -> Iterator[NewerMariaDB]:
    root = unstable()
    unpacked = root / "opt" / "mariadb"
    if not unpacked.exists():
        folder = root / "srv" / "packages"
        folder.mkdir(parents=True, exist_ok=True)
        call(inside("sh", "-c", f"cd /srv/packages && apt-get -qq download {' '.join(MARIADB)}"))
        for package in folder.glob("*.deb"):
            call(["dpkg", "-x", str(package), str(unpacked)])
        shutil.rmtree(folder)
    start = starter(root, unpacked / "usr" / "sbin" / "mariadbd", unpacked / LIBRARIES)
    with (
        tempfile.TemporaryDirectory() as name,
        running(NewerMariaDB(Path(name), unpacked, start)) as server,
    ):
        yield server


def on_newer_mariadb() -> Result:
    with newer_mariadb() as server:
        with (
            pymysql.connect(host="127.0.0.1", port=server.port, user="root") as session,
            session.cursor() as cursor,
        ):
            cursor.execute("CREATE DATABASE test")  # Django connects to it to make the tests'
        environment = {"DATABASE": "mariadb", "MARIADB_PORT": str(server.port)}
        counts = run(TESTS, environment, *OPTIONS)
        on = of_database(environment)
        return Result(version=on.server, counts=counts, on=on)


def on_newer_redis() -> Result:
    root = unstable("redis-server")
    return on_one(str(starter(root, root / "usr" / "bin" / "redis-server")))
