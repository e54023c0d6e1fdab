"""drf-idempotency has one backend in a project.

This one is both of its own, so that one run can measure them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drf_idempotency.backends.base import AcquireResult, BaseBackend, StoredRecord
from drf_idempotency.backends.database import DatabaseBackend
from drf_idempotency.backends.redis import RedisBackend

from .settings import REDIS_URL

#: How the keys begin that go to Redis.
IN_REDIS = "redis-"
PREFIX = "bench-peers:"


class Either(BaseBackend):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._redis = RedisBackend(url=REDIS_URL, key_prefix=PREFIX)
        self._database = DatabaseBackend()

    def _of(self, key: str) -> BaseBackend:
        return self._redis if key.startswith(IN_REDIS) else self._database

    def acquire_or_get(self, key: str, fingerprint: str, *, lock_ttl: timedelta) -> AcquireResult:
        return self._of(key).acquire_or_get(key, fingerprint, lock_ttl=lock_ttl)

    def complete(
        self, key: str, *, status_code: int, headers: Mapping[str, str], body: bytes, ttl: timedelta
    ) -> None:
        self._of(key).complete(key, status_code=status_code, headers=headers, body=body, ttl=ttl)

    def fail(self, key: str) -> None:
        self._of(key).fail(key)

    def get(self, key: str) -> StoredRecord | None:
        return self._of(key).get(key)

    def cleanup_expired(self) -> int:
        return int(self._database.cleanup_expired())
