"""The packages of a dependency group and extras of this project, and which modules of this
environment belong to none of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import all_suffixes
from importlib.metadata import PackageNotFoundError, distributions, requires
from inspect import getmodulename
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent.parent


def project() -> dict[str, Any]:
    """Return what pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def installed_by(group: str, *extras: str) -> set[str]:
    """Return the distributions that a dependency group and extras of this project need, by their
    canonical names.

    Our own requirements are read from pyproject.toml: the metadata of an editable installation may
    be older.
    """
    read = project()
    own = read["project"]
    ours = canonicalize_name(own["name"])
    found: set[tuple[str, str]] = set()
    waiting: list[tuple[str, str]] = [(ours, extra) for extra in ("", *extras)]
    waiting += _needed(_of_group(read["dependency-groups"], group), "")
    while waiting:
        name, wanted = each = waiting.pop()
        if each in found:
            continue
        found.add(each)
        if name != ours:
            lines = _requires(name)
        elif wanted:
            lines = own["optional-dependencies"][wanted]
        else:
            lines = own["dependencies"]
        waiting += _needed(lines, wanted)
    return {name for name, _ in found}


def _of_group(groups: dict[str, Any], group: str) -> list[str]:
    """Return the lines of a dependency group and of those that it includes."""
    lines: list[str] = []
    for each in groups[group]:
        if isinstance(each, str):
            lines.append(each)
        else:
            lines += _of_group(groups, each["include-group"])
    return lines


def _needed(lines: Iterable[str], wanted: str) -> list[tuple[str, str]]:
    """Return the distributions, each with "" and with the extras that are needed of it."""
    requirements = [Requirement(line) for line in lines]
    return [
        (canonicalize_name(each.name), extra)
        for each in requirements
        if each.marker is None or each.marker.evaluate({"extra": wanted})
        for extra in ("", *each.extras)
    ]


def _requires(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []  # then none of its modules are here


def refused_without(group: str, *extras: str) -> set[str]:
    """Return the top-level modules of this environment that an environment with only that group and
    those extras does not have.
    """
    present = installed_by(group, *extras)
    return _modules(kept=False, of=present) - _modules(kept=True, of=present)


def _modules(*, kept: bool, of: set[str]) -> set[str]:
    """Return the top-level modules of the distributions in `of`, or of all others.

    `packages_distributions()` of Python 3.10 overlooks wheels without a top_level.txt, so the files
    are read.
    """
    found = {
        file.parts[0] if len(file.parts) > 1 else getmodulename(file.name) or ""
        for distribution in distributions()
        if (canonicalize_name(distribution.metadata["Name"]) in of) is kept
        for file in distribution.files or ()
        if file.suffix in all_suffixes()
    }
    return {module for module in found if module.isidentifier() and not (ROOT / module).exists()}


def refusing(modules: Iterable[str]) -> dict[str, str]:
    """Return the environment of a process, and of those that it starts, in which these modules
    cannot be imported.
    """
    paths = [str(Path(__file__).resolve().parent / "refusing"), os.environ.get("PYTHONPATH", "")]
    return {
        "REFUSED_MODULES": " ".join(sorted(modules)),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
