"""A guarded function with records in this process, compared with the same function under AWS Lambda
Powertools.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from typing import Any

from django.test import override_settings

from django_idempotency import idempotent_function

from .measuring import Case, Effort, interleaved
from .table import Row, Section

PEER = "aws_lambda_powertools"
MEMORY = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}

Payload = dict[str, Any]
_orders = count(1)


def missing() -> str | None:
    """Return the name of the library to compare with, if it is not installed."""
    return None if find_spec(PEER) is not None else "aws-lambda-powertools"


def about() -> str:
    return f"aws-lambda-powertools {version('aws-lambda-powertools')}"


@contextmanager
def in_memory() -> Iterator[None]:
    with override_settings(IDEMPOTENCY={"STORES": {"default": MEMORY}, "GUARANTEE": "lease"}):
        yield


def sections(effort: Effort) -> Iterator[Section]:
    by_id = under_powertools(paid, event_key_jmespath="order_id")
    small = compared(small_payload, guarded(paid, key="order_id"), by_id)
    yield Section(
        title="A small payload, one field of it the key; the same under Powertools = 1",
        rows=rows(small, effort),
    )
    validated = compared(
        small_payload,
        guarded(paid, key="order_id", validate="[amount, currency]"),
        under_powertools(
            paid, event_key_jmespath="order_id", payload_validation_jmespath="[amount, currency]"
        ),
    )
    yield Section(
        title="One field of it the key, two of them validated; the same under Powertools = 1",
        rows=rows(validated, effort),
    )
    classes = compared(
        order,
        guarded(receipt_for, key="order_id"),
        under_powertools(receipt_for, event_key_jmespath="order_id"),
    )
    yield Section(
        title="A dataclass in, another out, one field of it the key; the same under Powertools = 1",
        rows=rows(classes, effort),
    )
    whole = compared(long_payload, guarded(paid), under_powertools(paid, event_key_jmespath=""))
    yield Section(
        title="A payload of 100 items, all of it the key; the same under Powertools = 1",
        rows=rows(whole, effort),
    )


def rows(pairs: dict[str, tuple[Case, Case]], effort: Effort) -> list[Row]:
    timings = interleaved([case for pair in pairs.values() for case in pair], effort)
    return [
        Row(name=name, values=timings.ratios(ours.name, theirs.name))
        for name, (ours, theirs) in pairs.items()
    ]


def compared(
    payload: Callable[[], Any], ours: Callable[..., Any], theirs: Callable[..., Any]
) -> dict[str, tuple[Case, Case]]:
    """Return first call and replay, for each library."""
    return {
        "first call": (
            first("first, ours", ours, payload),
            first("first, theirs", theirs, payload),
        ),
        "replay": (
            replay("replay, ours", ours, payload),
            replay("replay, theirs", theirs, payload),
        ),
    }


def first(name: str, function: Callable[..., Any], payload: Callable[[], Any]) -> Case:
    return Case(name, lambda: partial(function, order=payload()))


def replay(name: str, function: Callable[..., Any], payload: Callable[[], Any]) -> Case:
    known = payload()
    function(order=known)
    return Case(name, lambda: partial(function, order=known))


# ---------------------------------------------------------------------------------- what is guarded


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: int
    currency: str


@dataclass(frozen=True)
class Receipt:
    id: str
    status: str


def paid(*, order: Payload) -> Payload:
    return {"id": order["order_id"], "status": "paid"}


def receipt_for(*, order: Order) -> Receipt:
    return Receipt(id=order.order_id, status="paid")


def small_payload() -> Payload:
    return {"order_id": f"order-{next(_orders)}", "amount": 2499, "currency": "EUR"}


def order() -> Order:
    return Order(**small_payload())


def long_payload() -> Payload:
    items = [{"sku": f"sku-{n}", "name": "A thing", "count": n, "gift": False} for n in range(100)]
    return {**small_payload(), "items": items}


def guarded(
    function: Callable[..., Any], *, key: str | None = None, validate: str | None = None
) -> Callable[..., Any]:
    return idempotent_function(data_keyword_argument="order", key=key, validate=validate)(function)


def under_powertools(function: Callable[..., Any], **selected: str) -> Callable[..., Any]:
    """Return a function under Powertools, which also keeps its records in a dict."""
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.exceptions import (
        IdempotencyItemAlreadyExistsError,
        IdempotencyItemNotFoundError,
    )
    from aws_lambda_powertools.utilities.idempotency.persistence.base import BasePersistenceLayer
    from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord
    from aws_lambda_powertools.utilities.idempotency.serialization.dataclass import (
        DataclassSerializer,
    )

    class InMemory(BasePersistenceLayer):
        def __init__(self) -> None:
            self.records: dict[str, DataRecord] = {}
            super().__init__()  # type: ignore[no-untyped-call]

        def _get_record(self, idempotency_key: str) -> DataRecord:
            try:
                return self.records[idempotency_key]
            except KeyError:
                raise IdempotencyItemNotFoundError from None

        def _put_record(self, data_record: DataRecord) -> None:
            known = self.records.get(data_record.idempotency_key)
            if known is not None and not known.is_expired:
                raise IdempotencyItemAlreadyExistsError(old_data_record=known)
            self.records[data_record.idempotency_key] = data_record

        def _update_record(self, data_record: DataRecord) -> None:
            self.records[data_record.idempotency_key] = data_record

        def _delete_record(self, data_record: DataRecord) -> None:
            self.records.pop(data_record.idempotency_key, None)

    class Invocation:
        def get_remaining_time_in_millis(self) -> int:
            return 30_000

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return idempotent_function(  # type: ignore[no-any-return]
            function,
            data_keyword_argument="order",
            persistence_store=InMemory(),
            config=IdempotencyConfig(**selected, lambda_context=Invocation()),  # type: ignore[arg-type]
            output_serializer=DataclassSerializer(Receipt) if function is receipt_for else None,
        )
