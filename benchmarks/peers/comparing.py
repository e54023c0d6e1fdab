"""The tables: what each package costs over the same bare view, with what it has missed, and every
accident's outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.entry_points import Wrong
from benchmarks.measuring import Act, Case, Effort, interleaved
from benchmarks.table import Row, Section

from .accidents import KINDS, Kind, Seen, Stage
from .libraries import BARE, LIBRARIES, Library, prepared


def sections(effort: Effort) -> Iterator[Section]:
    with prepared():
        stage = Stage()
        seen = {
            kind: {library: kind.happen(stage, library) for library in LIBRARIES} for kind in KINDS
        }
        yield from costs(stage, effort, {library: missed(library, seen) for library in LIBRARIES})
        for kind in KINDS:
            yield outcome(kind.title, seen[kind])


def missed(library: Library, seen: dict[Kind, dict[Library, Seen]]) -> str:
    return "; ".join(said for kind in KINDS if (said := kind.said(seen[kind][library])))


def costs(stage: Stage, effort: Effort, notes: dict[Library, str]) -> Iterator[Section]:
    """Compare first requests, then replays, all of them timed in turn."""
    bare = Case("bare DRF view", lambda: partial(answered, stage, BARE, None))
    firsts = {
        library: Case(f"first, {library}", partial(first, stage, library)) for library in LIBRARIES
    }
    replays = {library: replay(stage, library) for library in LIBRARIES}
    timings = interleaved([bare, *firsts.values(), *replays.values()], effort)
    for what, cases in (("First request", firsts), ("Replay", replays)):
        rows = [
            Row(name=str(library), values=timings.ratios(case.name, bare.name), note=notes[library])
            for library, case in cases.items()
        ]
        yield Section(
            title=f"{what} through DRF with token auth; the bare view = 1; and what went wrong "
            "below",
            rows=rows,
        )


def first(stage: Stage, library: Library) -> Act:
    return partial(answered, stage, library, library.key())


def replay(stage: Stage, library: Library) -> Case:
    key = library.key()
    answered(stage, library, key)
    return Case(f"replay, {library}", lambda: partial(answered, stage, library, key))


def answered(stage: Stage, library: Library, key: str | None) -> None:
    status = stage.client.send(stage.answers[library], library, key).status_code
    if status != 201:
        raise Wrong(f"{library} answered {status}")


def outcome(title: str, seen: dict[Library, Seen]) -> Section:
    right = next(iter(seen.values())).right
    rows = [
        Row(
            name=str(library),
            values=[each.charges],
            unit="",
            bar=right,
            at_least=right > 1,
            note="responses: " + ", ".join(map(str, each.statuses)),
        )
        for library, each in seen.items()
    ]
    return Section(title=f"{title} ({right} is right)", rows=rows)
