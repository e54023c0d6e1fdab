"""Tests bound the cost of a request and the modules that are loaded.

They count, never time; these numbers only go down.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pytest

from django_idempotency import api
from django_idempotency.api import requests

from ..test_architecture import MODULES, imports
from .calls import PACKAGE
from .shape import brackets, matching, total

#: Journey → files entered, calls, changes of file, statements. The bracket is one file, which views
#: and functions have entered since they share it, and a function's call is made, run and ended in
#: two more.
JOURNEYS = {
    "drf_first": (21, 133, 69, 7),
    "drf_replay": (16, 83, 33, 1),
    "drf_keyless": (4, 11, 6, 1),
    "plain_first": (20, 128, 69, 7),
    "plain_replay": (16, 78, 33, 1),
    "plain_keyless": (3, 6, 4, 1),
    "function_first": (18, 84, 50, 7),
    "function_replay": (14, 41, 19, 1),
}
#: The same under ATOMIC_REQUESTS, where BEGIN, COMMIT and two savepoints are statements.
JOURNEYS_INSIDE = {
    "drf_first": (22, 145, 75, 11),
    "drf_replay": (18, 88, 37, 5),
    "drf_keyless": (4, 11, 6, 3),
    "plain_first": (21, 140, 75, 11),
    "plain_replay": (18, 83, 37, 5),
    "plain_keyless": (3, 6, 4, 3),
}
#: Modules that are loaded by `django.setup()` with the app alone, and by a guarded DRF view, its
#: first request included.
LOADED = {"apps": 25, "view": 84}

#: Folders at the top, and those of them that import each other in circles.
FOLDERS, FOLDERS_IN_CIRCLES = 18, 0

#: Nodes of the syntax tree: of the core, with what it once asked `contrib` for by strings, and of the
#: whole package.
NODES_OF_CORE, NODES = 102_669, 204_176
#: Of the whole package: what is dense to read, and the lines of more than 100 columns.
DENSITY = {
    "parallel_assignments": 2,
    "walruses": 109,
    "conditional_expressions": 998,
    "long_lines": 52,
}
#: Of the core: where a type says nothing.
UNTYPED = 984
#: Of the core: modules of `contrib` that a string names, and those that name ATOMIC_REQUESTS.
PATHS_OF_CONTRIB, FILES_OF_ATOMIC_REQUESTS = 0, 9
#: Imports of contrib that a stranger could not write: of the core, and neither of `api` nor of what
#: else is public. The names of `api`.
INNER_IMPORTS, NAMES_OF_API = 499, 60
#: The folders of contrib that a stranger could have written.
STRANGERS = (
    *("allauth", "batches", "business_key", "deadlines", "dialects", "fingerprints", "forms"),
    *("limits", "optional_app", "tenants", "views"),
)
#: What opens a call and ends it: the bracket, its async shell, the hooks of REST framework, those of
#: other frameworks, and the command that settles what an abandoned owner has left.
BRACKETS = 5


@cache
def measured(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.budgets.project", *arguments],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("journey", "atomic"),
    [
        *((journey, False) for journey in JOURNEYS),
        *((journey, True) for journey in JOURNEYS_INSIDE),
    ],
)
def test_a_request_stays_within_its_budget(journey: str, atomic: bool) -> None:
    """A journey enters no more files, calls, changes of file and statements than it may."""
    most = (JOURNEYS_INSIDE if atomic else JOURNEYS)[journey]
    found = measured(*(["atomic"] if atomic else []))["journeys"][journey]
    counts = tuple(found[name] for name in ("files", "calls", "changes", "statements"))
    over = [count > limit for count, limit in zip(counts, most, strict=True)]
    assert not any(over), (
        f"{journey}: {counts}, at most {most}. Most calls: {', '.join(found['most'])}"
    )


@pytest.mark.parametrize(
    ("journey", "response"), [("drf_first", 201), ("drf_replay", 201), ("plain_first", 201)]
)
def test_the_journeys_arrive(journey: str, response: int) -> None:
    """What is counted is a request that succeeds."""
    assert measured()["journeys"][journey]["response"] == response


@pytest.mark.parametrize("what", LOADED)
def test_modules_loaded(what: str) -> None:
    """A project loads what it needs: not more modules than this."""
    names = measured(*(["apps"] if what == "apps" else []))["loaded"]
    folders = Counter(name.split(".")[1] for name in names if "." in name)
    assert len(names) <= LOADED[what], f"{len(names)} modules: {folders.most_common(10)}"


def test_folders() -> None:
    """No more folders at the top than this, and no more of them in circles."""
    graph: dict[str, set[str]] = {
        path.name: set() for path in PACKAGE.iterdir() if (path / "__init__.py").exists()
    }
    for name, path in MODULES.items():
        if (folder := name.partition(".")[0]) in graph:
            graph[folder] |= {
                other.partition(".")[0]
                for _, other, ours in imports(name, path.read_text())
                if ours
            } & graph.keys()
    circling = sorted(
        folder for folder in graph if folder in reached(graph, graph[folder] - {folder})
    )
    assert len(graph) <= FOLDERS, sorted(graph)
    assert len(circling) <= FOLDERS_IN_CIRCLES, circling


def reached(graph: Mapping[str, set[str]], start: Iterable[str]) -> set[str]:
    """Return the folders that some lead to."""
    found: set[str] = set()
    following = set(start)
    while following:
        found |= following
        following = {other for folder in following for other in graph[folder] - {folder}} - found
    return found


def test_nodes() -> None:
    """The package has no more syntax than this."""
    assert total("nodes", core=True) <= NODES_OF_CORE
    assert total("nodes", core=False) <= NODES


@pytest.mark.parametrize("figure", DENSITY)
def test_density(figure: str) -> None:
    """The package is no denser than this."""
    assert total(figure, core=False) <= DENSITY[figure]


def test_names() -> None:
    """What the core finds by a name in a string, and what it leaves without a type."""
    assert total("untyped", core=True) <= UNTYPED
    assert sum(matching(r"[\"'](?:django_idempotency\.)?contrib\.").values()) <= PATHS_OF_CONTRIB


def test_brackets() -> None:
    """A call is opened and settled in few places, and ATOMIC_REQUESTS is known in few."""
    assert len(brackets()) <= BRACKETS, brackets()
    files = matching(r"ATOMIC_REQUESTS|non_atomic")
    assert len(files) <= FILES_OF_ATOMIC_REQUESTS, [*files]


def test_what_contrib_imports() -> None:
    """It imports no more of the core's inside than this, and some of its folders nothing."""
    public = {"api", "api.requests", "errors", "models", "signals", "django_idempotency"}
    inner = [
        f"{name} imports {other}"
        for name, path in MODULES.items()
        if name.startswith("contrib.")
        for _, other, ours in imports(name, path.read_text())
        if ours and other not in public and not f"{other}.".startswith("contrib.")
    ]
    assert len(inner) <= INNER_IMPORTS, inner
    strangers = tuple(f"contrib.{folder}" for folder in STRANGERS)
    assert set(strangers) <= MODULES.keys()
    assert [each for each in inner if each.startswith(strangers)] == []


def test_names_of_the_api() -> None:
    """It has no more names than this, and its docstrings say what each is for."""
    said = f"{api.__doc__} {requests.__doc__}"
    names = [*api.__all__, *requests.__all__]
    assert len(names) <= NAMES_OF_API
    assert [name for name in names if not re.search(rf"\b{name}\b", said)] == []
