"""The page's left columns name what is there, and all of it that a project sets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from drf_idempotency.settings import DEFAULTS
from idemkit import HttpConfig, MethodConfig

from ....docs.pages import _CODE, table, text

PAGE = "how-to/moving-over.md"
#: Package → its module.
MODULES = {
    "drf-idempotency": "drf_idempotency",
    "djangorestframework-idempotency-key": "rest_framework_idempotency_key",
    "drf-idempotencykey": "drf_idempotencykey",
    "idemkit": "idemkit",
}
#: How the tables of names begin.
TABLES = {package: [f"## From {package}\n"] for package in MODULES}
TABLES["idemkit"].append("Functions and messages:")
#: Words of Django, of REST framework, and of a project.
NOT_THEIRS = {"INSTALLED_APPS", "action", "api_view", "CardDeclined"}


def source(package: str) -> str:
    """Return the package's modules and its description."""
    spec = find_spec(MODULES[package])
    assert spec is not None
    (folder,) = spec.submodule_search_locations or []
    modules = [path.read_text(encoding="utf-8") for path in Path(folder).rglob("*.py")]
    commands = [path.stem for path in Path(folder).rglob("management/commands/*.py")]
    return "\n".join([*modules, *commands, str(distribution(package).metadata)])


def named(package: str) -> set[str]:
    """Return the names in the left columns of a package's tables."""
    cells = [there for each in TABLES[package] for there, _ in table(PAGE, each)]
    return {
        name
        for cell in cells
        for _, code in _CODE.findall(cell)
        for name in re.findall(r"\w+", code)
    }


@pytest.mark.parametrize("package", MODULES)
def test_names_of_theirs(package: str) -> None:
    """Each is in its source, or in its description."""
    words = set(re.findall(r"\w+", source(package)))
    assert named(package) - words - NOT_THEIRS == set()


def settings_of(package: str) -> Iterable[str]:
    if package == "drf-idempotency":
        return list(DEFAULTS)
    if package == "idemkit":
        return [field.name for config in (HttpConfig, MethodConfig) for field in fields(config)]
    return re.findall(r"(?:settings\.|settings, ?\s*[\"'])(IDEMPOTENCY_KEY_\w+)", source(package))


@pytest.mark.parametrize("package", MODULES)
def test_each_setting_is_named(package: str) -> None:
    """Whoever moves finds all of them."""
    settings = set(settings_of(package))
    assert settings
    assert settings - named(package) == set()


@pytest.mark.parametrize("package", MODULES)
def test_versions(package: str) -> None:
    """The page says which version it is about."""
    part = text(PAGE).partition(f"## From {package}\n")[2]
    assert part.lstrip().startswith(f"Version {distribution(package).version}.")
