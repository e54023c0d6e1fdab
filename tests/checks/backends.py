"""Stores as other projects might write them."""

from __future__ import annotations

from django.core.checks import CheckMessage, Warning  # noqa: A004 - its name

from django_idempotency.core.expressions import Expression
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.wrapper import WrappedStore
from tests.support.fakes import FakeStore

#: Asks the request for an attribute that it does not have.
FOREIGN = Expression("shop.id")


class OutsideStore(FakeStore):
    """A store that joins no transaction."""

    supports_atomic = False

    def __init__(self, *, url: str = "") -> None:
        super().__init__(claims=[])


class StrayStore(OutsideStore):
    """In a database that the project does not have."""

    using = "defualt"


class WrappingStore(WrappedStore):
    """Has a finding of its own, of its options or of its server."""

    def __init__(self, *, server: bool) -> None:
        super().__init__(OutsideStore())
        self.server = server

    def check(
        self, alias: str, *, deploy: bool = False, copies_only: bool = False
    ) -> list[CheckMessage]:
        return (
            [Warning(alias, hint="Wrap it in paper.", id="backends.W1")]
            if deploy is self.server
            else []
        )


class AroundStore(WrappedStore):
    """Around a store that its OPTIONS name."""

    nested = ("inner",)

    def __init__(self, *, inner: BaseStore, strict: bool = False) -> None:
        if strict:
            raise ValueError("too strict")
        super().__init__(inner)


class FrontedStore(WrappedStore):
    """The same, with a front of its own making."""

    nested = ("front", "inner")

    def __init__(self, *, front: BaseStore, inner: BaseStore) -> None:
        super().__init__(inner)
        self.front = front


class FailingStore(FakeStore):
    """A store that cannot be built."""

    def __init__(self) -> None:
        raise RuntimeError("no licence")


class NoStore:
    """A class that is not a BaseStore."""


def not_a_store() -> NoStore:
    return NoStore()
