"""The smallest dialect: a name, a clock, and the clock moved."""

from __future__ import annotations

from django_idempotency.stores.orm.dialects import Dialect


class Plain(Dialect):
    vendor = "plain"
    clock = "statement_timestamp()"
    later = "statement_timestamp() + %s * interval '1 second'"
