"""Stores as somebody else might write them."""

from __future__ import annotations

from django_idempotency.selectors import Selector
from tests.support.fakes import FakeStore

#: Of a request it asks what that does not have.
STRANGER = Selector("shop.id")


class OutsideStore(FakeStore):
    """Joins no transaction."""

    supports_atomic = False

    def __init__(self, *, url: str = "") -> None:
        super().__init__(claims=[])


class FailingStore(FakeStore):
    """Cannot be built."""

    def __init__(self) -> None:
        raise RuntimeError("no licence")


class NoStore:
    """Is no BaseStore."""


def not_a_store() -> NoStore:
    return NoStore()
