"""A batch in its own process, which a plan may kill. Prints how many records had each outcome."""

from __future__ import annotations

import json
import sys
from typing import Any

import django

from django_idempotency import current_operation, idempotent_function
from django_idempotency.contrib.batches import process_batch

RECORDS = [{"id": number} for number in range(12)]


# With its own name, because this module has another one when run as a program.
@idempotent_function(key="record.id", key_prefix="tests.faults.batches")
def charge(record: dict[str, Any]) -> int:
    from testproject.payments.models import Effect

    current = current_operation()
    assert current is not None
    Effect.objects.create(label="charge", idempotency_key=current.key, attempt=current.attempt)
    return int(record["id"])


if __name__ == "__main__":
    django.setup()
    json.dump(dict(process_batch(RECORDS, charge).counts), sys.stdout)
