"""MariaDB with `innodb_rollback_on_timeout=ON`, which rolls back a whole transaction for one lock
wait timeout.
"""

from __future__ import annotations

import getpass
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from django.db import OperationalError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idempotency.core.records import Status
from django_idempotency.core.rules import Execute, Replay
from django_idempotency.errors import WritesRolledBack
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.support.combining import KIND
from tests.support.services import SERVERS_PATH, needs_mariadb_server

from ..helpers import OUTCOME, Call, effects, row

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(KIND != "mariadb", reason="The server of this test is MariaDB's"),
    needs_mariadb_server,
]


@pytest.fixture(scope="module")
def strict_server() -> Iterator[str]:
    """Start a server, which reads the setting once, and return its socket."""
    program = shutil.which("mariadbd", path=SERVERS_PATH)
    assert program is not None
    # Not pytest's own folder, whose path is too long for a socket.
    with tempfile.TemporaryDirectory() as folder:
        socket, log = Path(folder, "socket"), Path(folder, "log")
        (data := Path(folder, "data")).mkdir()
        command = [
            program,
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={data}",
            f"--socket={socket}",
        ]
        command += ["--skip-networking", "--skip-grant-tables", "--innodb-buffer-pool-size=16M"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--innodb-rollback-on-timeout=ON"],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            deadline = time.monotonic() + 30
            while not socket.exists():
                assert process.poll() is None, log.read_text(errors="replace")
                assert time.monotonic() < deadline, log.read_text(errors="replace")
                time.sleep(0.05)
            yield str(socket)
        finally:
            process.terminate()
            process.wait(timeout=30)


@pytest.fixture
def strict(
    strict_server: str, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BaseDatabaseWrapper]:
    """Point the default connection at that server, and return another connection."""
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "HOST", strict_server)
        patch.setitem(connection.settings_dict, "NAME", "")
        with connection.cursor() as cursor:
            cursor.execute("CREATE OR REPLACE DATABASE strict")
        connection.close()
        patch.setitem(connection.settings_dict, "NAME", "strict")
        with connection.schema_editor() as schema:
            schema.create_model(IdempotencyRecord)
            schema.create_model(Effect)
        other = connection.copy("other")
        yield other
        other.close()
        connection.close()


@pytest.mark.parametrize("block", [False, True], ids=["plain", "in a block"])
def test_a_swallowed_lock_wait_timeout(strict: BaseDatabaseWrapper, block: bool) -> None:
    """The earlier writes are gone, so the response is not remembered; the retry runs, and writes
    once.
    """
    wanted = f"UPDATE {Effect._meta.db_table} SET label = 'held' WHERE label = 'wanted by two'"
    Effect.objects.create(label="wanted by two")
    with strict.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(wanted)
    call = Call()
    call.open()
    call.work()
    with connection.cursor() as cursor:
        cursor.execute("SET innodb_lock_wait_timeout = 0")
        with (
            pytest.raises(OperationalError, match="1205"),
            transaction.atomic() if block else nullcontext(),
        ):
            cursor.execute(wanted)
    with pytest.raises(WritesRolledBack):
        call.settle()
    strict.close()
    assert (effects(), row(call.ticket).status, call.listener.events) == (
        1,
        Status.FREE,
        ["claimed", "released"],
    )
    assert Call().run() == Execute(attempt=2)
    assert (effects(), Call().run()) == (2, Replay(outcome=OUTCOME, attempt=1 + 1))
