"""Measure every store whose server can be reached, and print tables of ratios.

    python -m benchmarks [--databases sqlite postgresql mariadb] [--stores memory functions redis
    dynamodb]
                         [--rounds 9] [--rows 100000] [--full]
    python -m benchmarks --distance|--partitions|--peers|--throughput|--scale|--churn|--memory
                         [--databases postgresql]

No test judges times: a missed bar is shown, and the command exits with 0. It exits with 1 when
something could not be run.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys

from .environments import ROOT, built

DATABASES = ("sqlite", "postgresql", "mariadb")
#: Stores without a database, and guarded functions: one process measures all of them.
STORES = ("memory", "functions", "redis", "dynamodb")
#: What is measured only when it is asked for, or can be measured alone; on PostgreSQL, unless a
#: database is named.
TABLES = {
    "distance": "only: the database half a millisecond away each way",
    "partitions": "only: records in partitions by day, on PostgreSQL",
    "peers": "only: other packages beside this one, on PostgreSQL",
    "throughput": "only: gunicorn and uvicorn under load",
    "scale": "only: a large table, a day's churn, the memory of a worker, on PostgreSQL (with "
    "--full hours)",
    "churn": "only: the day's churn (with --full an hour)",
    "memory": "only: the memory of a worker (with --full an hour)",
}


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--databases", nargs="*", choices=DATABASES)
    parser.add_argument("--stores", nargs="*", choices=STORES, default=STORES)
    parser.add_argument(
        "--rounds", type=int, default=9, help="ratios are taken within a round (default: 9)"
    )
    parser.add_argument(
        "--samples", type=int, default=40, help="of each case in a round (default: 40)"
    )
    parser.add_argument(
        "--rows", type=int, default=100_000, help="the largest table of growth (default: 100000)"
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="1 M rows (--scale: 10 M), and a purge of 100,000 rows a round",
    )
    for table, about in TABLES.items():
        parser.add_argument(
            f"--{table}", dest="table", action="store_const", const=table, help=about
        )
    parser.add_argument(
        "--save",
        action="store_true",
        help="with --scale, --churn, --memory: keep the results, and draw the docs' charts",
    )
    # The one that this process measures.
    parser.add_argument("--here", choices=(*DATABASES, "stores"), help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.databases is None:
        parsed.databases = DATABASES if parsed.table is None else ("postgresql",)
    if parsed.table is not None:
        parsed.stores = ()
    if min(parsed.rounds, parsed.samples, parsed.rows) < 1:
        parser.error("--rounds, --samples and --rows are 1 or more")
    return parsed


def main(arguments: list[str]) -> int:
    chosen = options(arguments)
    if chosen.here:
        from .measuring import Effort
        from .run import run, run_stores

        largest = 10_000_000 if chosen.table == "scale" else 1_000_000
        effort = Effort(
            rounds=chosen.rounds,
            samples=chosen.samples,
            rows=largest if chosen.full else chosen.rows,
            purged=100_000 if chosen.full else min(chosen.rows, 20_000),
            requests=1_000_000 if chosen.full else chosen.rows // 10,
            churn=10_000_000 if chosen.full else chosen.rows,
        )
        return (
            run_stores(chosen.stores, effort)
            if chosen.here == "stores"
            else run(effort, chosen.table, save=chosen.save)
        )

    import django

    print(
        f"Python {platform.python_version()}, Django {django.__version__}, "
        f"{os.cpu_count()} cores, ",
        end="",
    )
    print(
        f"medians of {chosen.rounds} rounds of {chosen.samples} interleaved samples, "
        "ratios within a round."
    )
    if chosen.table in (None, "distance"):
        print("In process, on a kept connection, without garbage collection.", end=" ")
    print("Bars: what the design promises.", flush=True)
    python, path, codes = sys.executable, {}, []
    if chosen.table == "peers":
        python, path = str(built("peers") / "python"), {"PYTHONPATH": str(ROOT)}
    # One process each: settings are read once.
    for here in (
        *chosen.databases,
        *(["stores"] if chosen.stores else []),
    ):
        database = here if here in DATABASES else DATABASES[0]
        settings = "benchmarks.peers.settings" if chosen.table == "peers" else "benchmarks.settings"
        environment = {
            **os.environ,
            "DATABASE": database,
            "DJANGO_SETTINGS_MODULE": settings,
            **path,
        }
        command = [python, "-m", "benchmarks", *arguments, "--here", here]
        codes.append(subprocess.run(command, env=environment, check=False).returncode)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
