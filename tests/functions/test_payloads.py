"""The payload of a call: the function gets the same object, without a copy, and its bytes are built
once per call.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_idempotency import idempotent_function

pytestmark = pytest.mark.usefixtures("memory")


class Watched(Mapping[str, Any]):
    """A payload that counts how often each of its fields is read, and that cannot be copied."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields
        self.reads = dict.fromkeys(fields, 0)

    def __getitem__(self, name: str) -> Any:
        value = self._fields[name]
        self.reads[name] += 1
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __copy__(self) -> Any:
        raise AssertionError("it was copied")

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("it was copied")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise AssertionError("it was pickled")


@pytest.fixture(params=["sync", "async"])
def guard(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a maker of guarded functions that note the order they got; calls are sync in either
    mode.
    """

    def make(got: list[Any], **given: Any) -> Any:
        if request.param == "sync":

            @idempotent_function(key_prefix="charge", **given)
            def charge(order: Any, *, note: str = "") -> str:
                got.append(order)
                return "charged"

            return charge

        @idempotent_function(key_prefix="charge", **given)
        async def acharge(order: Any, *, note: str = "") -> str:
            await asyncio.sleep(0)
            got.append(order)
            return "charged"

        return async_to_sync(acharge)

    return make


@pytest.mark.parametrize(
    ("given", "number", "lines"),
    [
        ({}, 1, 1),
        ({"key": "order"}, 1, 1),
        ({"key": lambda payload: payload["order"]}, 1, 1),
        ({"data_keyword_argument": "order"}, 1, 1),
        ({"key": "order.number"}, 1, 0),
        ({"key": "order.number", "validate": "order.lines"}, 1, 1),
        ({"key": "order.number", "validate": "order"}, 2, 1),  # the number is in both
        ({"key": "order", "validate": "order"}, 2, 2),
        ({"validate": "order"}, 2, 2),
    ],
    ids=[
        "all",
        "one",
        "callable",
        "one by name",
        "part",
        "part and part",
        "part and whole",
        "twice",
        "all and one",
    ],
)
def test_each_selected_part_is_read_once(
    guard: Any, given: dict[str, Any], number: int, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is read once for the key and once for `validate`, in first calls and replays;
    nothing else is read.
    """

    def refuse(*_: Any) -> Any:
        raise AssertionError("something was copied")

    got: list[Any] = []
    charge = guard(got, **given)
    line = Watched(sku="tea", amount=5)
    order = Watched(number=17, lines=[line])
    again = Watched(number=17, lines=[Watched(sku="tea", amount=5)])
    with monkeypatch.context() as patch:
        patch.setattr(copy, "copy", refuse)
        patch.setattr(copy, "deepcopy", refuse)
        assert [charge(order=order), charge(order=again)] == ["charged"] * 2
    assert len(got) == 1
    assert got[0] is order
    for each in (order, again):
        assert each.reads == {"number": number, "lines": lines}
        assert each._fields["lines"][0].reads == {"sku": lines, "amount": lines}
