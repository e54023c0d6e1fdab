"""Measure every store whose server can be reached, and print tables of ratios.

    python -m benchmarks [--databases sqlite postgresql mariadb] [--stores memory functions redis dynamodb]
                         [--rounds 9] [--rows 100000] [--full]

No test judges times: a missed bar is shown, and the command exits with 0. It exits with 1 when something could not be
run.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys

DATABASES = ("sqlite", "postgresql", "mariadb")
#: Stores without a database, and guarded functions: one process measures all of them.
STORES = ("memory", "functions", "redis", "dynamodb")


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("--databases", nargs="*", choices=DATABASES, default=DATABASES)
    parser.add_argument("--stores", nargs="*", choices=STORES, default=STORES)
    parser.add_argument("--rounds", type=int, default=9, help="ratios are taken within a round (default: 9)")
    parser.add_argument("--samples", type=int, default=40, help="of each case in a round (default: 40)")
    parser.add_argument("--rows", type=int, default=100_000, help="the largest table of growth (default: 100000)")
    parser.add_argument("--full", action="store_true", help="1 M rows, and a purge of 100,000 rows a round")
    parser.add_argument(
        "--here", choices=(*DATABASES, "stores"), help=argparse.SUPPRESS
    )  # the one that this process measures
    parsed = parser.parse_args(arguments)
    if min(parsed.rounds, parsed.samples, parsed.rows) < 1:
        parser.error("--rounds, --samples and --rows are 1 or more")
    return parsed


def main(arguments: list[str]) -> int:
    chosen = options(arguments)
    if chosen.here:
        from .measuring import Effort
        from .run import run, run_stores

        effort = Effort(
            rounds=chosen.rounds,
            samples=chosen.samples,
            rows=1_000_000 if chosen.full else chosen.rows,
            purged=100_000 if chosen.full else min(chosen.rows, 20_000),
        )
        return run_stores(chosen.stores, effort) if chosen.here == "stores" else run(effort)

    import django

    print(f"Python {platform.python_version()}, Django {django.__version__}, {os.cpu_count()} cores, ", end="")
    print(f"medians of {chosen.rounds} rounds of {chosen.samples} interleaved samples, ratios within a round.")
    print("In process, on a kept connection, without garbage collection. Bars: what the design promises.", flush=True)
    codes = []
    for here in (*chosen.databases, *(["stores"] if chosen.stores else [])):  # one process each: settings are read once
        database = here if here in DATABASES else DATABASES[0]
        environment = {**os.environ, "DATABASE": database, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
        command = [sys.executable, "-m", "benchmarks", *arguments, "--here", here]
        codes.append(subprocess.run(command, env=environment, check=False).returncode)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
