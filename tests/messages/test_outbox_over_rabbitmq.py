"""From an effect's transaction to the effect of its message, while everything in between is killed:
real processes.

producers ──► outbox ──► relays ──► RabbitMQ ──► consumer ──► effects
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.db import connection

from django_idempotency.contrib.outbox.models import Message
from testproject.payments.models import Effect

from ..faults.plans import until
from ..support.services import needs_rabbitmq
from ..support.store_servers import running
from .actors import FOLDER, POINTS
from .broker import RabbitMQServer

pytestmark = [
    pytest.mark.either_server,
    needs_rabbitmq,
    pytest.mark.faults,
    pytest.mark.django_db(transaction=True),
]

ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCERS = 3
#: No wait of the test takes this long: a relay that lost its broker retries every 10 seconds.
PATIENCE = 90
ACTORS = {
    **{
        f"producer {n}": ["-m", "tests.messages.actors", "produce", str(n)]
        for n in range(PRODUCERS)
    },
    "relay": [
        "manage.py",
        "idempotency_relay",
        "--publisher=tests.messages.actors.Publisher",
        "--poll=0.05",
        "--batch=20",
    ],
    "consumer": ["-m", "tests.messages.actors", "consume"],
}


class Shop:
    """The processes, and what they have done."""

    def __init__(self, folder: Path, broker: RabbitMQServer) -> None:
        self.folder = folder
        self.broker = broker
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, actor: str) -> None:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            "DATABASE_NAME": str(connection.settings_dict["NAME"]),
            "RABBITMQ_URL": self.broker.url,
            FOLDER: str(self.folder),
        }
        with (self.folder / "output").open("ab") as output:
            self._running[actor] = subprocess.Popen(
                [sys.executable, *ACTORS[actor]],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=output,
            )

    def await_end(self, actor: str) -> int:
        """Wait until an actor has ended, for whatever reason."""
        return self._running.pop(actor).wait(PATIENCE)

    def kill_at(self, point: str, actor: str) -> None:
        """Kill an actor when it gets to a point, and start another."""
        (self.folder / f"{point}.kill").touch()
        assert self.await_end(actor) == -signal.SIGKILL, self.output
        self.start(actor)

    def terminate(self, actor: str) -> int:
        self._running[actor].terminate()
        return self.await_end(actor)

    def kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait(10)

    def await_news(self) -> None:
        """Wait until ten more messages are booked."""
        before = self.booked()
        self.until(lambda: self.booked() >= before + 10, "ten more messages are booked")

    def until(self, check: Callable[[], object], what: str) -> None:
        try:
            until(check, what, patience=PATIENCE)
        except TimeoutError:
            pytest.fail(f"{what}: not within {PATIENCE} s. {self.output}")

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")[-4000:]

    def booked(self) -> int:
        return Effect.objects.filter(label__startswith="booked").count()

    def sent(self) -> list[str]:
        return list(Effect.objects.filter(label="sent").values_list("idempotency_key", flat=True))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    (tmp_path / "broker").mkdir()
    with running(RabbitMQServer(tmp_path / "broker")) as broker, ExitStack() as ends:
        shop = Shop(tmp_path, broker)
        ends.callback(shop.kill_all)
        yield shop


def test_each_message_has_its_effect_once(shop: Shop) -> None:
    """Relay, broker and consumer are killed in turn at their worst moments: nothing is lost or
    booked twice.
    """
    for actor in ("consumer", "relay", *ACTORS):
        if actor not in shop._running:
            shop.start(actor)
    shop.await_news()
    shop.kill_at("published", "relay")
    shop.await_news()
    shop.broker.restart()
    shop.await_news()
    shop.kill_at("booked", "consumer")
    shop.await_news()
    shop.kill_at("acking", "consumer")
    shop.await_news()
    shop.terminate("producer 0")
    for number in range(1, PRODUCERS):
        shop._running[f"producer {number}"].kill()  # in the middle of a transaction, perhaps
        shop.await_end(f"producer {number}")
    sent = shop.sent()
    shop.until(lambda: shop.booked() >= len(sent), "all messages are booked")
    time.sleep(0.5)  # time for an excess booking to show
    assert shop.terminate("relay") == 0, shop.output

    booked = list(Effect.objects.filter(label__startswith="booked").order_by("pk"))
    assert Counter(effect.idempotency_key for effect in booked) == Counter(sent)
    assert not Message.objects.exists()
    # Each kill really left work to repeat.
    deliveries = Counter((shop.folder / "deliveries").read_text().split())
    assert set(deliveries) == set(sent)
    assert sum(deliveries.values()) >= len(sent) + 3
    assert all((shop.folder / f"{point}.killed").exists() for point in POINTS)
    # There is one writer per key, so order holds: a message that was published again had been
    # published before.
    numbers = defaultdict(list)
    for effect in booked:
        numbers[effect.label].append(effect.attempt)
    assert all(seen == sorted(seen) for seen in numbers.values())
