"""What checks say about the stores."""

from __future__ import annotations

from ...stores.check_messages import SILENCE, STORE_CHECKS

STORES: dict[str, tuple[str, str]] = {
    "E010": (
        'IDEMPOTENCY["STORES"] is malformed: %(problem)s.',
        (
            'Type "STORES": {"default": {"BACKEND": "django_idempotency.stores.orm.ORMStore", '
            '"OPTIONS": {"using": "default"}}}.'
        ),
    ),
    "E011": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] has no usable BACKEND: %(error)s.',
        'Type "BACKEND": "django_idempotency.stores.orm.ORMStore", or the dotted path of another BaseStore.',
    ),
    "E012": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] cannot be built: %(error)s.',
        'Type in "OPTIONS" what %(backend)s takes: %(takes)s.',
    ),
    "E013": (
        'IDEMPOTENCY["STORE"] = %(value)s, and IDEMPOTENCY["STORES"] has no such alias.',
        'Type "STORE": "%(close)s", or add the alias to "STORES".',
    ),
    "E014": STORE_CHECKS["E014"],
    "E015": STORE_CHECKS["E015"],
    "E016": (
        'IDEMPOTENCY["GUARANTEE"] is "atomic", which the store "%(alias)s" cannot keep: it joins no transaction.',
        (
            'Type "STORE": the alias of an ORMStore. Or type "GUARANTEE": "lease": then what a killed worker has written is '
            "not rolled back, and the retry writes it again."
        ),
    ),
    "E017": (
        'DATABASES["%(using)s"] has "AUTOCOMMIT": False, and records live there: no other connection would see a claim.',
        'Take "AUTOCOMMIT": False out of DATABASES["%(using)s"], and open transactions with atomic().',
    ),
    "E018": STORE_CHECKS["E018"],
    "E019": STORE_CHECKS["E019"],
    "E040": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] is a %(backend)s, and its driver %(driver)s is not installed.',
        'Type python -m pip install "django-idempotency[%(extra)s]".',
    ),
    "E041": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] has %(value)s as its "%(name)s", which is not possible: %(problem)s.',
        'Type "%(name)s": "%(close)s"%(added)s.',
    ),
    "E042": (
        (
            'IDEMPOTENCY["STORES"]: "%(alias)s" and "%(other)s" keep different records behind one front, %(front)s, '
            "so copies of one's records would be replayed for the other."
        ),
        (
            'Type "front": "front-%(other)s" in "%(other)s", and add "front-%(other)s": '
            '{"BACKEND": "django_idempotency.stores.redis.RedisStore", '
            '"OPTIONS": {"cache": "%(cache)s", "prefix": "idempotency-%(other)s"}} to "STORES".'
        ),
    ),
    "W003": (
        (
            'IDEMPOTENCY["STORES"]["%(alias)s"] is a MemoryStore: other processes do not see its records, '
            "and a restart loses them."
        ),
        (
            'Type "BACKEND": "django_idempotency.stores.orm.ORMStore". '
            f"For tests, or if there is only one process, {SILENCE}."
        ),
    ),
}
