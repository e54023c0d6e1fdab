"""PostgreSQL through the other ways in which Django may speak to it: the same contract, and
requests to real servers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version as installed
from pathlib import Path

from . import obtaining
from .databases import BESIDE_A_POOLER, OPTIONS, TESTS, place, server, version
from .running import Result, of_database, run

#: Calls that meet in the middle, besides what runs on every server.
INTERLEAVED = [f"tests/stores/test_{name}.py" for name in ("callers", "endings", "interference")]
INTERLEAVED += ["tests/entry_points/test_left_open.py"]
#: With gunicorn: requests at once, killed workers, a database that goes away.
REQUESTS = tuple(f"tests/faults/test_{name}.py" for name in ("bursts", "kills", "outages"))
FAULTS = (*OPTIONS[:-1], "faults")
#: What the tests import, without psycopg 3: where that is installed, Django uses it.
PSYCOPG2 = (
    *(
        "boto3",
        "celery",
        "django",
        "django-redis",
        "djangorestframework",
        "factory-boy",
        "gunicorn",
        "httpx",
    ),
    *(
        "hypothesis",
        "jmespath",
        "psycopg2-binary",
        "pytest",
        "pytest-django",
        "pytest-randomly",
        "pytest-xdist",
    ),
    *("prometheus-client", "standardwebhooks", "uvicorn"),
)
#: Not under gevent: an event loop and all greenlets share a thread, so nobody runs async views
#: there.
LOOPS = ("async", "Async", "in_one_loop", "many_tasks", "no_database", "any_sequence")
#: Not with a pool: a killed connection is not the last one, so the settle finds another, and
#: succeeds.
LAST_CONNECTIONS = ("test_killed_in_a_lease_with_its_server", "test_killed_before_a_rollback")


@dataclass(frozen=True, kw_only=True)
class Driver:
    """What differs from Django's default: psycopg 3, client-side binding, threads, no pool."""

    name: str
    #: Environment of the tests, and what else the servers of the requests have.
    environment: Mapping[str, str] = field(default_factory=dict)
    serving: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = OPTIONS
    cases: Sequence[str] = ()
    requests: Sequence[str] = REQUESTS
    #: Returns the interpreter, after it has obtained what is missing.
    python: Callable[[], Path] = lambda: Path(sys.executable)
    #: The module that runs pytest, but not where requests go to servers.
    module: str = "pytest"


def gevent() -> Path:
    obtaining.library("gevent", obtaining.GEVENT)
    return Path(sys.executable)


DRIVERS = {
    "combine-off": Driver(
        name='"combine": False',
        environment={"STORE_OPTIONS": '{"combine": false}'},
        requests=("tests/faults",),
    ),
    "server-side-binding": Driver(
        name="server-side binding",
        environment={"POSTGRESQL_OPTIONS": '{"server_side_binding": true}'},
    ),
    "pool": Driver(
        name=f"psycopg_pool {installed('psycopg-pool')}",
        # The tests of races hold a connection in each of 50 threads.
        environment={
            "POSTGRESQL_OPTIONS": '{"pool": {"min_size": 2, "max_size": 60, "timeout": 5}}'
        },
        serving={"POSTGRESQL_OPTIONS": '{"pool": {"timeout": 5}}', "CONN_MAX_AGE": "0"},
        options=(
            *OPTIONS,
            *BESIDE_A_POOLER,
            "-k",
            " and ".join(f"not {each}" for each in LAST_CONNECTIONS),
        ),
    ),
    "psycopg2": Driver(
        name=f"psycopg2 {installed('psycopg2-binary')}",
        options=(*OPTIONS, *BESIDE_A_POOLER),
        python=lambda: obtaining.environment("psycopg2", PSYCOPG2),
    ),
    "gevent": Driver(
        name=obtaining.GEVENT.replace("==", " "),
        environment={"PYTHONPATH": str(obtaining.CACHE / "gevent")},
        serving={"WORKER_CLASS": "gevent", "CONN_MAX_AGE": "0"},
        # In one process: xdist's have threads before the patch.
        options=("-n", "0", *OPTIONS[2:], "-k", " and ".join(f"not {each}" for each in LOOPS)),
        cases=["tests/proofs/reach/cases/greenlets.py"],
        python=gevent,
        module="tests.proofs.reach.patched",
    ),
}


def through(driver: Driver) -> Result:
    python = str(driver.python())
    with server(obtaining.DEBIANS) as one:
        environment = {**place(one.port), **driver.environment}
        tests = [*TESTS, *INTERLEAVED, *driver.cases]
        counts = run(tests, environment, *driver.options, command=(python, "-m", driver.module))
        serving = {**environment, **driver.serving}
        counts += run(driver.requests, serving, *FAULTS, command=(python, "-m", "pytest"))
        on = of_database(environment, python)
        if driver.name != on.driver:
            on = replace(on, driver=f"{on.driver}, {driver.name}")
        return Result(version=f"{version(one.port)}, {driver.name}", counts=counts, on=on)
