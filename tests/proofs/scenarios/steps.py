"""What a published scenario consists of, as data: requests or calls, what the work does, and what
must follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: As a header's value: any.
ANY = "*"


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the view or the function does if it runs."""

    status: int = 201
    #: `None`: what the request has sent.
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: What is raised instead.
    raises: type[BaseException] | None = None
    #: What a function returns, and what a view ignores.
    returns: Any = "done"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the authors of the scenario expect of a step. What is left out does not matter."""

    status: int | None = None
    #: How often the work has run by then, in the whole scenario.
    runs: int | None = None
    #: `None` as a value: the header is absent. `ANY`: it is there.
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: str | None = None
    length: int | None = None
    contains: str | None = None
    #: The `code` of a problem document.
    code: str | None = None
    #: The answer is that of this earlier step, by number.
    same_as: int | None = None
    #: Of calls at the same time: do all get the same answer?
    identical: bool | None = None
    #: Of a function: what becomes of its message, or what it raises; "an error": anything;
    #: "returned": nothing.
    ending: str | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """A request, or a call of a function with `arguments`."""

    key: str | None = "k"
    body: str = "a"
    method: str = "POST"
    #: How the client spells the name of the header.
    header: str = "Idempotency-Key"
    caller: str = "client"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    work: Work = Work()
    #: Sent while this step's work runs.
    meanwhile: Step | None = None
    #: How many do the same at the same time.
    at_once: int = 1
    #: What passes before it (seconds).
    after: float = 0
    #: Is the record damaged before it?
    damaged: bool = False
    wanted: Wanted = Wanted()


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A published scenario, in our words."""

    name: str
    says: str
    steps: tuple[Step, ...] = ()
    #: The fields of the policy, or the arguments of `@idempotent_function`, that say what the
    #: scenario configures.
    terms: Mapping[str, Any] = field(default_factory=dict)
    #: A setting that has no counterpart here.
    lacks: str | None = None
