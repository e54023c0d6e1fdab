"""What our stores' `check()` reports: its texts, and how a check message is built. `checks.catalogue` includes them."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from django.core.checks import CheckMessage, Error, Info
from django.core.checks import Warning as Caution

PREFIX = "django_idempotency"
SILENCE = 'SILENCED_SYSTEM_CHECKS = ["django_idempotency.%(code)s"]'

#: Code → (message, hint).
STORE_CHECKS: dict[str, tuple[str, str]] = {
    "E014": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] uses the database %(using)s, which DATABASES does not have.',
        'Type "OPTIONS": {"using": "%(close)s"}, or add the database.',
    ),
    "E015": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] uses the database "%(using)s", whose kind is "%(vendor)s".',
        (
            'Type "OPTIONS": {"using": …} with a database of PostgreSQL, MariaDB, MySQL or SQLite, '
            "or register a dialect for this kind."
        ),
    ),
    "E018": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] keeps its records in the cache "%(cache)s", which CACHES does not have.',
        (
            'Type "OPTIONS": {"cache": "%(close)s"}, or add CACHES["%(cache)s"] = '
            '{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:6379/1"}.'
        ),
    ),
    "E019": (
        (
            'IDEMPOTENCY["STORES"]["%(alias)s"] keeps its records in CACHES["%(cache)s"], '
            "which is not a django-redis cache: %(problem)s."
        ),
        (
            'Type CACHES["%(cache)s"] = {"BACKEND": "django_redis.cache.RedisCache", '
            '"LOCATION": "redis://127.0.0.1:6379/1"}, or "OPTIONS": {"cache": …} with one that is.'
        ),
    ),
    "E051": (
        'The Redis of IDEMPOTENCY["STORES"]["%(alias)s"] is version %(version)s, but the store needs 5 or later.',
        "Type redis-cli INFO server to see which server responds, and move the records to Redis 5 or later.",
    ),
    "E052": (
        'The table "%(table)s" of IDEMPOTENCY["STORES"]["%(alias)s"] is missing in DynamoDB.',
        "Type python manage.py create_idempotency_table --store=%(alias)s",
    ),
    "E053": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] does not match its table in DynamoDB: %(error)s',
        'Type in "OPTIONS" the names that the table has ("key_attr", "sort_key_attr", "attributes"), or another "table".',
    ),
    "W061": (
        (
            'The Redis of IDEMPOTENCY["STORES"]["%(alias)s"] evicts keys when its %(maxmemory)s are full '
            '(maxmemory-policy is "%(policy)s"): the work of an evicted record runs again.'
        ),
        (
            "Type redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf "
            "(or in the parameters of a managed service). If a cache needs eviction, put the records into another Redis."
        ),
    ),
    "W062": (
        (
            'The Redis of IDEMPOTENCY["STORES"]["%(alias)s"] writes no append-only file (appendonly is "no"): '
            "a restart loses records, and their work runs again."
        ),
        (
            "Type redis-cli CONFIG SET appendonly yes, and the same in redis.conf. "
            f"If the service persists them in another way, {SILENCE}."
        ),
    ),
    "W063": (
        (
            'TTL is off for the DynamoDB table "%(table)s" of IDEMPOTENCY["STORES"]["%(alias)s"]: '
            "nothing is deleted, and it grows forever."
        ),
        "Type python manage.py create_idempotency_table --store=%(alias)s",
    ),
}


def message(catalogue: Mapping[str, tuple[str, str]], code: str, **facts: Any) -> CheckMessage:
    """Build the check message of a code in a catalogue."""
    text, hint = catalogue[code]
    kind = {"E": Error, "W": Caution, "I": Info}[code[0]]
    facts["code"] = code
    return kind(text % facts, hint=hint % facts, id=f"{PREFIX}.{code}")


def finding(code: str, **facts: Any) -> CheckMessage:
    """Build the check message of one of our stores."""
    return message(STORE_CHECKS, code, **facts)


def closest(name: str, known: Iterable[Any]) -> str:
    """Return the known name that is most similar to `name`."""
    return next(iter(get_close_matches(name, map(str, known), n=1, cutoff=0)), "default")


def shown(value: Any) -> str:
    """Return a value's repr, shortened, on one line."""
    try:
        return " ".join(_SHORT.repr(value).split())
    except Exception:  # noqa: BLE001 - a foreign repr
        return type_named(value)


def one_line(error: BaseException) -> str:
    """Return an error's type and message, shortened, on one line: our messages say what to type."""
    try:
        text = " ".join(str(error).split()).rstrip(".")
    except Exception:  # noqa: BLE001 - a foreign repr
        text = ""
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def type_named(value: Any) -> str:
    """Name the type of a value without showing it: it may be a secret."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
