"""All histories of a setting, breadth first, and what must be true in each state of them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from django_idempotency.core.records import Status

from .world import Setting, World, steps


class Found(NamedTuple):
    """What a search has found: the broken promise with its shortest history, or none; and how many
    states it has seen.
    """

    states: int
    broken: str = ""
    history: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.broken:
            return f"holds in {self.states:,} states"
        return "\n".join(
            [self.broken, *(f"  {number}. {said}" for number, said in enumerate(self.history, 1))]
        )


def broken_promise(world: World, setting: Setting) -> str:
    """Return the promise that a state breaks; "" for none."""
    for where, record, here in (
        ("in the database", world.record, world.here),
        ("on disk", world.record_on_disk, world.here_on_disk),
    ):
        completed = record is not None and record.status is Status.COMPLETED
        if completed and not here:
            return f"A response is remembered {where}, and its writes are not committed."
        if setting.atomic and here and not completed:
            return f"Writes are committed {where}, and their response is not remembered."
    if setting.atomic and world.here > 1:
        return "The effect here was had twice."
    if setting.there != "plain" and len(world.there) > 1:
        return (
            "The effect at the provider was had twice, although the work asked, or passed its "
            "derived key."
        )
    stored = world.record_on_disk is not None and world.record_on_disk.status is Status.COMPLETED
    if not stored and any(client.told for client in world.clients):
        return "A client was told of a response that a crash forgets."
    return ""


def search(setting: Setting) -> Found:
    """Look at every state that can be reached, the nearest first, until a promise is broken."""
    first = World()
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        for said, after in steps(world, setting):
            if after in came_from:
                continue
            came_from[after] = (world, said)
            if broken := broken_promise(after, setting):
                return Found(len(came_from), broken, _history(after, came_from))
            waiting.append(after)
    return Found(len(came_from))


def reaches(setting: Setting, effects: int) -> bool:
    """Can the effect at the provider be had so often?

    Shows that a search has looked at what it is about.
    """
    first = World()
    seen = {first}
    waiting = deque([first])
    while waiting:
        for _, after in steps(waiting.popleft(), setting):
            if len(after.there) >= effects:
                return True
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return False


def _history(world: World, came_from: dict[World, tuple[World, str] | None]) -> tuple[str, ...]:
    said: list[str] = []
    while (step := came_from[world]) is not None:
        world = step[0]
        said.append(step[1])
    return tuple(reversed(said))
