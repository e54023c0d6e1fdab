"""What an extra of this project installs, and which modules of this environment it does not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import all_suffixes
from importlib.metadata import PackageNotFoundError, distributions, requires
from inspect import getmodulename
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent.parent


def installed_by(extra: str) -> set[str]:
    """Return the distributions that `pip install django-idempotency[extra]` needs, by their
    canonical names.

    Our own requirements are read from pyproject.toml: the metadata of an editable installation may
    be older.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = canonicalize_name(project["name"])
    found: set[tuple[str, str]] = set()
    waiting: list[tuple[str, str]] = [(ours, ""), (ours, extra)]
    while waiting:
        name, wanted = each = waiting.pop()
        if each in found:
            continue
        found.add(each)
        if name == ours:
            lines = project["optional-dependencies"][wanted] if wanted else project["dependencies"]
        else:
            lines = _requires(name)
        for line in lines:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": wanted}):
                waiting += [(canonicalize_name(needed.name), of) for of in ("", *needed.extras)]
    return {name for name, _ in found}


def _requires(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []  # then none of its modules are here


def refused_without(extra: str) -> set[str]:
    """Return the top-level modules of this environment that an environment with only that extra
    does not have.
    """
    present = installed_by(extra)
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
