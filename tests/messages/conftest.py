"""A broker for the whole folder; for each test a queue of its own, and the processes that take
messages from it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ..support.store_servers import running
from .broker import RabbitMQServer
from .mail import Mail


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQServer]:
    # It logs much about a node that is not up yet.
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    with running(RabbitMQServer(tmp_path_factory.mktemp("rabbitmq"))) as broker:
        yield broker


@pytest.fixture
def mail(rabbitmq: RabbitMQServer, tmp_path: Path, transactional_db: None) -> Iterator[Mail]:
    with closing(Mail(rabbitmq.url, f"q{uuid.uuid4().hex[:8]}", tmp_path)) as mail:
        yield mail
