"""What a request may cost and how large the package may be. They count, never time, and these numbers only go down."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pytest

from ..test_architecture import LEAVES, MODULES, SHARED, imports
from .calls import PACKAGE

#: Journey → files entered, calls, changes of file, statements.
JOURNEYS = {
    "drf_first": (20, 133, 70, 7),
    "drf_replay": (16, 83, 35, 1),
    "drf_keyless": (5, 14, 9, 1),
    "plain_first": (20, 124, 69, 7),
    "plain_replay": (16, 75, 34, 1),
    "plain_keyless": (3, 6, 4, 1),
    "function_first": (16, 79, 46, 7),
    "function_replay": (12, 38, 16, 1),
}
#: Modules that are loaded by `django.setup()` with the app alone, and by a guarded DRF view, its first request included.
LOADED = {"apps": 25, "view": 84}

#: Wings that came after the budget of all lines was set, and their own.
LATER_LINES = 2_500
LATER = (
    *("contrib/browser", "contrib/business_key", "contrib/by_route", "contrib/deadlines", "contrib/fingerprints"),
    *("contrib/client/adaptive", "contrib/client/lookup", "contrib/grpc", "contrib/modern_rest"),
    *("contrib/metrics/fronts", "contrib/monitoring/clients", "contrib/publishing/amazon", "contrib/outbox/publishers"),
    *("contrib/outbox/waking", "contrib/dialects/commerce", "contrib/dialects/wire", "contrib/tools"),
)
#: Lines of code, without docstrings, comments and blank lines; in all but those, and of the part that every project has.
LINES, CORE_LINES = 28_860, 13_931
#: Deletable, as tests/test_deletable.py shows: no part of the core. Records in a database need neither the stores that are
#: named by BACKEND, such as those in memory and in Redis, nor what such stores share.
APART = ("contrib", "testing", *(name.replace(".", "/") for name in (*LEAVES, *SHARED)))
#: Folders at the top, and those of them that import each other in circles.
FOLDERS, FOLDERS_IN_CIRCLES = 18, 0


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


@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_request_stays_within_its_budget(journey: str) -> None:
    """A journey enters no more files, calls, changes of file and statements than it may."""
    found = measured()["journeys"][journey]
    counts = tuple(found[name] for name in ("files", "calls", "changes", "statements"))
    over = [count > most for count, most in zip(counts, JOURNEYS[journey], strict=True)]
    assert not any(over), f"{journey}: {counts}, at most {JOURNEYS[journey]}. Most calls: {', '.join(found['most'])}"


@pytest.mark.parametrize(("journey", "response"), [("drf_first", 201), ("drf_replay", 201), ("plain_first", 201)])
def test_the_journeys_arrive(journey: str, response: int) -> None:
    """What is counted is a request that succeeds."""
    assert measured()["journeys"][journey]["response"] == response


@pytest.mark.parametrize("what", LOADED)
def test_modules_loaded(what: str) -> None:
    """A project loads what it needs: not more modules than this."""
    names = measured(*(["apps"] if what == "apps" else []))["loaded"]
    folders = Counter(name.split(".")[1] for name in names if "." in name)
    assert len(names) <= LOADED[what], f"{len(names)} modules: {folders.most_common(10)}"


def test_lines_of_code() -> None:
    """The package has no more lines of code than this, in all and in its core."""
    lines = {str(path.relative_to(PACKAGE)): lines_of_code(path.read_text()) for path in MODULES.values()}
    later = {name: lines.pop(name) for name in list(lines) if name.startswith(LATER)}
    assert sum(later.values()) <= LATER_LINES, later
    core = {name: count for name, count in lines.items() if not name.startswith(APART)}
    longest = sorted(lines.items(), key=lambda item: -item[1])[:5]
    assert (sum(lines.values()) <= LINES, sum(core.values()) <= CORE_LINES) == (True, True), (
        f"{sum(lines.values())} lines, {sum(core.values())} of them in the core. The longest: {longest}"
    )


def test_folders() -> None:
    """No more folders at the top than this, and no more of them in circles."""
    graph: dict[str, set[str]] = {path.name: set() for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    for name, path in MODULES.items():
        if (folder := name.partition(".")[0]) in graph:
            graph[folder] |= {
                other.partition(".")[0] for _, other, ours in imports(name, path.read_text()) if ours
            } & graph.keys()
    circling = sorted(folder for folder in graph if folder in reached(graph, graph[folder] - {folder}))
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


def lines_of_code(text: str) -> int:
    """Count the lines that hold code: no docstring, comment or blank line."""
    docstrings = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    quiet = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    code = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in quiet
        for number in range(token.start[0], token.end[0] + 1)
    }
    return len(code - docstrings)


def test_the_counter_of_lines() -> None:
    """It sees code, and only code."""
    assert (
        lines_of_code(
            '"""Doc."""\n\n# note\nx = 1  # why\ny = (\n    2,\n)\n\ndef f():\n    """Say.\n\n    More."""\n    return """a\nb"""\n'
        )
        == 7
    )
