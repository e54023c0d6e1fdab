"""The services beside the databases: skipped where they are not there, unless REQUIRE_SERVICES says that they must be."""

from __future__ import annotations

import os
import shutil
import socket

import pytest

REDIS = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/9")

#: Where servers' programs are.
MARIADBD_PATH = f"{os.defpath}:/usr/sbin:/usr/local/sbin"


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


needs_redis = pytest.mark.skipif(
    os.environ.get("REQUIRE_SERVICES") != "1" and not answers(6379), reason="Redis does not answer on port 6379."
)

#: Only its program: the tests start a node of their own.
needs_rabbitmq = pytest.mark.skipif(
    os.environ.get("REQUIRE_SERVICES") != "1"
    and shutil.which("rabbitmq-server", path=f"{os.defpath}:/usr/sbin") is None,
    reason="RabbitMQ is not installed.",
)

#: Only its program: a test starts a server of its own, with a setting that cannot be changed on one that runs.
needs_mariadb_server = pytest.mark.skipif(
    os.environ.get("REQUIRE_SERVICES") != "1" and shutil.which("mariadbd", path=MARIADBD_PATH) is None,
    reason="MariaDB's server is not installed.",
)
