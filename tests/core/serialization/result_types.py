"""Classes of every kind that can be stored, and functions whose annotations are strings."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import InitVar, dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import attrs
import pydantic

if TYPE_CHECKING:
    from nowhere import Absent  # type: ignore[import-not-found]


class State(Enum):
    PAID = "paid"
    HELD = object()  # a value that cannot be stored: members go by name


class Level(IntEnum):
    LOW = 1


class Text(str, Enum):
    A = "a"


class Right(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: Decimal = Decimal(0)


@dataclass
class Line:
    name: str
    price: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    id: UUID
    lines: list[Line]
    state: State = State.PAID
    tags: frozenset[str] = frozenset()


@dataclass
class Derived:
    """Its __init__ has an effect that is not repeated."""

    runs: ClassVar[int] = 0
    given: int
    seed: InitVar[int]
    made: int = field(init=False)
    unset: int = field(init=False)

    def __post_init__(self, seed: int) -> None:
        type(self).runs += 1
        self.made = self.given + seed
        self.note = "set aside"

    @cached_property
    def slow(self) -> Any:
        return object()


Item = TypeVar("Item")
OrderId = NewType("OrderId", Point)


@dataclass
class Page(Generic[Item]):
    items: list[Item]
    next: Page[Item] | None = None


class PaidPage(Page[Literal[State.PAID]]): ...


@attrs.frozen
class Money:
    amount: Decimal
    _currency: str = "EUR"


@attrs.define(slots=False)
class Account:
    owner: Owner | None = None
    balance: Money = attrs.field(factory=lambda: Money(Decimal(0)))


@attrs.define
class Owner:
    name: str


@attrs.define
class Untyped:
    """It declares its types as attrs did before annotations."""

    owner = attrs.field(type=Owner)


@attrs.frozen(cache_hash=True)
class Hashed:
    name: str


@attrs.frozen(cache_hash=True, slots=False)
class HashedOpen:
    name: str


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", frozen=True)

    name: str = pydantic.Field(alias="the_name")
    later: Later | None = None
    _hidden: int = pydantic.PrivateAttr(3)

    @cached_property
    def slow(self) -> Any:
        return object()


class Later(pydantic.BaseModel):
    """Defined after the model that names it."""

    when: date
    validated: bool = True

    @pydantic.field_validator("validated", mode="before")
    @classmethod
    def only_in_init(cls, value: bool) -> bool:
        assert value is True
        return value


class Waiting(pydantic.BaseModel):
    """No instance is ever made, so only our code completes it."""

    behind: Behind


class Behind(pydantic.BaseModel): ...


class Roots(pydantic.RootModel[list[Point]]): ...


class Envelope(pydantic.BaseModel, Generic[Item]):
    body: Item


#: A class of a generic model is made once, and has the name of the module that asks for it first.
OrderEnvelope = Envelope[Order]
LevelEnvelope = Envelope[Level]


@pydantic.dataclasses.dataclass
class Checked:
    at: date


class Row(TypedDict, total=False):
    order: Order
    money: Money


class Declined(Exception):
    """Its __init__ takes other arguments than it passes on, and is not called again."""

    def __init__(self, reason: State, *, limit: Decimal) -> None:
        super().__init__(f"declined: {reason.name}")
        self.reason = reason
        self.limit = limit


class DeclinedAgain(Declined):
    """No annotation names it."""


class Rewritten(Declined):
    def __str__(self) -> str:
        return "rewritten"


class Strict(Exception):
    def __new__(cls, *, name: str) -> Strict:  # noqa: PYI034 - Self came with Python 3.11
        return super().__new__(cls, name)

    def __init__(self, *, name: str) -> None:
        super().__init__(name)


@dataclass(frozen=True)
class Fielded(Exception):
    code: int


@attrs.define
class Slotted(Exception):
    code: int
    order: Order | None = None


class Service:
    def method(self) -> Order | None: ...

    @classmethod
    def cls_method(cls) -> list[Money]: ...  # type: ignore[empty-body]

    @staticmethod
    def static_method() -> Point: ...  # type: ignore[empty-body]

    def __call__(self) -> dict[str, Page[Order]]: ...  # type: ignore[empty-body]


def unresolved_argument(argument: Absent) -> Order: ...  # type: ignore[empty-body]


def partly_unresolved() -> Order | Absent | list[Absent[int]]: ...


def hopeless() -> Absent.attribute | Order: ...


async def awaited() -> Awaitable[Account]: ...  # type: ignore[empty-body]


def rows() -> list[Row]: ...  # type: ignore[empty-body]


def plain(): ...
