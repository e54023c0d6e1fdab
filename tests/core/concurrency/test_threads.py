"""Async work that outlives the main thread is still settled, in a real process that ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from django_idempotency.core.concurrency import in_thread
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord

ROOT = Path(__file__).resolve().parents[3]

#: A thread with its own event loop, whose call ends after the main thread. It is called once more,
#: too.
SCRIPT = """
import asyncio, threading
import django
django.setup()
from django_idempotency import idempotent_function, signals

at_work = threading.Event()

def tell(signal, **_):
    print("received")

async def atell(signal, **_):
    print("received in a loop")

receiver = {receiver}
if receiver is not None:
    signals.completed.connect(receiver)

@idempotent_function(guarantee="lease", key="order", key_prefix="charge", lease=30)
async def charge(order):
    at_work.set()
    while threading.main_thread().is_alive():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # until the interpreter has closed its executors
    return order

threading.Thread(target=lambda: print(asyncio.run(charge("o-17")))).start()
at_work.wait()
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("receiver", "received"), [("None", ""), ("tell", "received\n"), ("atell", "")]
)
def test_the_main_thread_has_ended(receiver: str, received: str) -> None:
    """The result and its record are there at once; an async receiver that cannot be called changes
    nothing.
    """
    environment = {**os.environ, "DATABASE_NAME": str(connection.settings_dict["NAME"])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(receiver=receiver)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"{received}o-17\n"
    assert IdempotencyRecord.objects.get().status == Status.COMPLETED
    assert "Deferred" not in done.stderr
    told = "async receivers of completed were not called" in done.stderr
    assert told is (receiver == "atell")


def test_an_error_of_the_call_is_its_own() -> None:
    """A RuntimeError raised by the called function does not make us call it again."""
    called = []

    def fail() -> None:
        called.append(1)
        raise RuntimeError("its own")

    with pytest.raises(RuntimeError, match="its own"):
        asyncio.run(in_thread(fail))
    assert called == [1]
