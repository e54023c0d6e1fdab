"""Real servers under load: requests in a second with a key, over the same server's requests to the
bare view.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

from django.contrib.auth.models import User
from django.db import connection
from rest_framework.authtoken.models import Token

from . import redis_store
from .environments import built
from .measuring import Effort
from .servers import GUNICORN, THREADS, UVICORN, WORKERS, serving
from .table import Row, Section

CLIENTS = WORKERS * THREADS
#: Seconds of a burst, and the most bursts of a case.
BURST, BURSTS = 5, 5
SCRIPT = Path(__file__).resolve().parent / "load.js"


class Kind(NamedTuple):
    name: str
    path: str
    keys: str
    bar: float | None = None


class Burst(NamedTuple):
    """What one client program saw: requests a second, and milliseconds."""

    rate: float
    p50: float
    p99: float


BARE = Kind("bare view", "/rest/bare/", "")
DATABASE = (
    Kind("fresh keys", "/rest/guarded/", "fresh", 0.7),
    Kind("replays", "/rest/guarded/", "known", 0.7),
)
REDIS = (
    Kind("fresh keys, Redis", "/rest/redis/", "fresh", 0.8),
    Kind("replays, Redis", "/rest/redis/", "known", 0.8),
)


def sections(effort: Effort) -> Iterator[Section]:
    k6 = str(built("load") / "k6")
    token = Token.objects.create(user=User.objects.create_user("load")).key
    with redis_store.opened() as redis:
        kinds = (BARE, *DATABASE, *(REDIS if redis.store is not None else ()))
        with serving(GUNICORN) as address:
            title = f"gunicorn, {WORKERS} workers with {THREADS} threads"
            yield measured(title, kinds, Load(k6, address, token), effort)
        pool = THREADS if connection.vendor == "postgresql" else 0
        with serving(UVICORN, pool=pool) as address:
            title = f"uvicorn, {WORKERS} workers" + (
                f" with a pool of {pool} connections" if pool else ""
            )
            yield measured(title, kinds, Load(k6, address, token), effort)


class Load:
    """k6 against one server."""

    def __init__(self, command: str, address: str, token: str) -> None:
        self._command, self._address, self._authorization = command, address, f"Token {token}"

    def send(self, kind: Kind, seconds: float) -> Burst:
        prefix = uuid4().hex
        if kind.keys == "known":
            for client in range(1, CLIENTS + 1):
                self._remember(kind, f"{prefix}-known-{client}")
        given = {
            "ADDRESS": self._address + kind.path,
            "AUTHORIZATION": self._authorization,
            "CLIENTS": str(CLIENTS),
            "KEYS": kind.keys,
            "PREFIX": prefix,
            "SECONDS": str(seconds),
        }
        command = [self._command, "run", "--quiet", "--no-usage-report", str(SCRIPT)]
        done = subprocess.run(
            command, env={**os.environ, **given}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{kind.name}: {done.stderr or done.stdout}")
        seen = json.loads(done.stdout)
        return Burst(seen["rate"], seen["p(50)"], seen["p(99)"])

    def _remember(self, kind: Kind, key: str) -> None:
        asked = HTTPConnection(urlsplit(self._address).netloc)
        headers = {
            "Authorization": self._authorization,
            "Content-Type": "application/json",
            "Idempotency-Key": key,
        }
        asked.request("POST", kind.path, '{"label": "work"}', headers)
        asked.getresponse().read()
        asked.close()


def measured(title: str, kinds: tuple[Kind, ...], load: Load, effort: Effort) -> Section:
    seconds = min(BURST, effort.samples)
    for kind in kinds:
        load.send(kind, 1)
    bursts: dict[Kind, list[Burst]] = {kind: [] for kind in kinds}
    for turn in range(min(effort.rounds, BURSTS)):
        for kind in kinds if turn % 2 == 0 else reversed(kinds):
            bursts[kind].append(load.send(kind, seconds))
    rates = {kind: [burst.rate for burst in seen] for kind, seen in bursts.items()}
    rows = [
        Row(
            name=kind.name,
            values=[mine / bare for mine, bare in zip(rates[kind], rates[BARE], strict=True)],
            bar=kind.bar,
            at_least=True,
            note=told(seen),
        )
        for kind, seen in bursts.items()
    ]
    return Section(
        title=f"{title}; {CLIENTS} clients, bursts of {seconds} s; the bare view = 1", rows=rows
    )


def told(bursts: list[Burst]) -> str:
    rate, p50, p99 = (median(column) for column in zip(*bursts, strict=True))
    return f"{rate:6.0f} /s, p50 {p50:.0f} ms, p99 {p99:.0f} ms"
