"""Run what the stores promise against each of these servers, and say at the end which could not be
had.

    python -m tests.proofs.reach [name ...]

What is missing is downloaded into .cache/reach, through apt, npm and pip as they are set up here.
This takes some fifty minutes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ... import matrix
from .databases import behind_pgbouncer, on_mysql, on_postgresql
from .drivers import DRIVERS, through
from .emulators import on_ministack, on_tansu
from .interpreters import INTERPRETERS
from .newer import on_newer_mariadb, on_newer_redis
from .obtaining import CACHE, Unavailable
from .redis_servers import FIGURES, in_a_group, on_valkey
from .running import Result

SERVERS: dict[str, Callable[[], Result]] = {
    **{f"postgresql-{major}": partial(on_postgresql, major) for major in ("15", "16", "17", "18")},
    **{name: partial(through, driver) for name, driver in DRIVERS.items()},
    "pgbouncer": behind_pgbouncer,
    "mysql": on_mysql,
    "mariadb-newest": on_newer_mariadb,
    "redis-newest": on_newer_redis,
    "valkey": on_valkey,
    "cluster": partial(in_a_group, "cluster"),
    "sentinel": partial(in_a_group, "sentinel"),
    "ministack": on_ministack,
    "kafka": on_tansu,
    **INTERPRETERS,
}


def main(names: Sequence[str]) -> int:
    chosen = [name for name in SERVERS if not names or any(map(partial(is_of, name), names))]
    unknown = [each for each in names if not any(is_of(name, each) for name in SERVERS)]
    if unknown:
        print(
            f"Unknown: {', '.join(unknown)}. There are {', '.join(SERVERS)}.",
            file=sys.stderr,
        )
        return 2
    # What was started is ended then, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    CACHE.mkdir(parents=True, exist_ok=True)
    FIGURES.unlink(missing_ok=True)
    results = {name: reach(name) for name in chosen}
    width = max(map(len, results))
    print()
    for name, result in results.items():
        print(f"{name:{width}}  {result.version:44}  {result.counts or result.note}")
    if FIGURES.exists():
        print(f"\n{FIGURES.read_text(encoding='utf-8')}")
    return int(any(result.counts is None or result.counts.failed for result in results.values()))


def is_of(name: str, typed: str) -> bool:
    """Does what was typed name a place, or all places that begin so: "python", "postgresql"?"""
    return name == typed or name.startswith(f"{typed}-")


def reach(name: str) -> Result:
    print(f"\n=== {name} {'=' * (100 - len(name))}", flush=True)
    try:
        result = SERVERS[name]()
    except Unavailable as why:
        return Result(version="", note=f"could not be had: {why}")
    except (AssertionError, subprocess.SubprocessError) as error:
        return Result(version="", note=f"does not start: {error}")
    if result.counts is not None and not result.counts.failed:
        matrix.note(
            by=f"make reach REACH={name}",
            name=name,
            passed=result.counts.passed,
            skipped=result.counts.skipped,
            on=result.on or replace(matrix.versions(), server=result.version),
        )
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
