"""Counts what layout cannot change: nodes of the syntax tree, and constructions that are dense.

    python -m tests.budgets.shape

prints the figures.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from .calls import PACKAGE

#: What a longer line is counted by.
COLUMNS = 100


@dataclass(frozen=True)
class Shape:
    """The figures of one module."""

    nodes: int
    lines: int
    long_lines: int
    parallel_assignments: int
    walruses: int
    conditional_expressions: int
    untyped: int


def modules() -> Iterator[Path]:
    """Yield the modules of the package."""
    yield from sorted(PACKAGE.rglob("*.py"))


#: What a project has only if it names it: an optional app, what tests need, and other stores.
OPTIONAL = (
    "contrib/",
    "testing/",
    "stores/dynamodb/",
    "stores/key_value/",
    "stores/layered/",
    "stores/memory.py",
    "stores/redis/",
)


def in_core(path: Path) -> bool:
    """Is a module part of the core, so that each project has it?"""
    return not path.relative_to(PACKAGE).as_posix().startswith(OPTIONAL)


@cache
def shape_of(path: Path) -> Shape:
    """Count one module."""
    text = path.read_text(encoding="utf-8")
    counted = [
        node
        for node in ast.walk(ast.parse(text))
        if not isinstance(node, (ast.Load, ast.Store, ast.Del))
    ]
    lines = text.splitlines()
    return Shape(
        nodes=len(counted),
        lines=sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines),
        long_lines=sum(len(line) > COLUMNS for line in lines),
        parallel_assignments=sum(is_parallel(node) for node in counted),
        walruses=sum(isinstance(node, ast.NamedExpr) for node in counted),
        conditional_expressions=sum(isinstance(node, ast.IfExp) for node in counted),
        untyped=sum(isinstance(node, ast.Name) and node.id == "Any" for node in counted),
    )


def is_parallel(node: ast.AST) -> bool:
    """Does a statement assign several values at once? Unpacking what a call returns is none."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def total(figure: str, *, core: bool) -> int:
    """Sum a figure, over the core or the whole package."""
    return sum(getattr(shape_of(path), figure) for path in modules() if not core or in_core(path))


def matching(pattern: str) -> dict[str, int]:
    """Return the modules of the core with a text, and how often each has it."""
    found = {}
    for path in modules():
        if in_core(path):
            count = len(re.findall(pattern, path.read_text(encoding="utf-8")))
            if count:
                found[path.relative_to(PACKAGE).as_posix()] = count
    return found


#: What opens a call, and what ends it after its work.
OPENS = {"open", "opened_in_thread"}
ENDS = {"settle", "finished", "ended", "finished_in_thread"}


def brackets() -> list[str]:
    """Return the functions and classes that open a call and end it: each is a bracket."""
    found = []
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                called = {
                    each.func.attr if isinstance(each.func, ast.Attribute) else each.func.id
                    for each in ast.walk(node)
                    if isinstance(each, ast.Call)
                    and isinstance(each.func, (ast.Attribute, ast.Name))
                }
                if called & OPENS and called & ENDS:
                    found.append(f"{path.relative_to(PACKAGE).as_posix()}:{node.name}")
    return found


def figures() -> dict[str, object]:
    """Return every figure."""
    first = Shape(0, 0, 0, 0, 0, 0, 0)
    return {
        "core": {name: total(name, core=True) for name in asdict(first)},
        "all": {name: total(name, core=False) for name in asdict(first)},
        "contrib": sum(matching(r"[\"'](?:django_idempotency\.)?contrib\.").values()),
        "atomic_requests": list(matching(r"ATOMIC_REQUESTS|non_atomic")),
        "brackets": brackets(),
    }


if __name__ == "__main__":
    print(json.dumps(figures(), indent=1))
