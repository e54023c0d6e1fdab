"""The plugin for pytest, in a pytest of its own, where Django may be missing."""

from __future__ import annotations

import importlib
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PLUGIN = "django_idempotency.testing.pytest_plugin"

SETTINGS = """
SECRET_KEY = "s"
INSTALLED_APPS = ["django_idempotency"]
_MEMORY = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}
IDEMPOTENCY = {"STORES": {"default": _MEMORY, "payments": _MEMORY}, "GUARANTEE": "lease"}
"""

#: In a project with Django: each fixture is there without an import, for its test and no longer.
WITH_DJANGO = """
import pytest
from django_idempotency import idempotent_function
from django_idempotency.runtime.registry import stores

runs = []

@idempotent_function(key="order")
def charge(order):
    runs.append(order)
    return len(runs)

@idempotent_function(key="order", store="payments")
def pay(order):
    return order

@pytest.mark.usefixtures("idempotency_disabled")
def test_idempotency_disabled():
    assert [charge(1), charge(1)] == [1, 2]

def test_afterwards_it_is_on():
    assert [charge(1), charge(1)] == [3, 3]

def test_override_idempotency(idempotency_disabled, override_idempotency):
    with override_idempotency(enabled=True):
        assert charge(1) == 3
    assert charge(1) == 4

def test_recording_store(recording_store):
    charge(2)
    charge(2)
    assert recording_store.verbs == ["claim", "settle", "claim"]
    pay(2)
    assert len(recording_store.verbs) == 3

@pytest.mark.parametrize("recording_store", ["payments"], indirect=True)
def test_recording_store_by_its_alias(recording_store):
    pay(2)
    charge(2)
    assert recording_store.verbs == ["claim"]

def test_afterwards_the_stores_are_back():
    assert type(stores["default"]).__name__ == type(stores["payments"]).__name__ == "MemoryStore"

def test_stores_are_built_anew_when_settings_change(recording_store, settings):
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "TTL": 50}
    charge(2)
    assert recording_store.verbs == []

def test_assert_idempotent(assert_idempotent):
    assert_idempotent(lambda: charge(3), effects=lambda: len(runs))

@pytest.mark.xfail(raises=AssertionError, strict=True)
def test_assert_idempotent_fails(assert_idempotent):
    assert_idempotent(lambda: runs.append(3))
"""

#: In a project without Django: nothing unwanted is loaded, and the switch needs no settings.
WITHOUT = """
import sys
from django_idempotency.runtime import switch

def test_nothing_heavy_is_loaded():
    loaded = {"models", "testing.asserting", "testing.contract", "stores.orm"}
    assert not {f"django_idempotency.{name}" for name in loaded} & set(sys.modules)
    assert not {"rest_framework", "redis", "boto3", "psycopg", "hypothesis"} & set(sys.modules)

def test_idempotency_disabled(idempotency_disabled):
    assert not switch.enabled()
"""


class Shop:
    """Another project, with tests."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def run(self, tests: str, *arguments: str) -> dict[str, int]:
        """Run its tests, and return the outcomes."""
        self.pytester.makepyfile(test_shop=tests)
        return self.pytest(*arguments).parseoutcomes()

    def pytest(self, *arguments: str) -> pytest.RunResult:
        """Run pytest with the plugin, once, whether the package is installed or not."""
        once = ("-p", "no:django_idempotency", "-p", PLUGIN)
        return self.pytester.runpytest_subprocess(
            *once, "-p", "no:randomly", "-p", "no:schemathesis", "-W", "error", *arguments
        )


@pytest.fixture
def shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("DJANGO_SETTINGS_MODULE", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(shop_settings=SETTINGS)
    return Shop(pytester)


def test_it_is_declared() -> None:
    """pytest finds it by the metadata of the package."""
    declared = re.search(
        r"\[project\.entry-points\.pytest11\]\n(\w+) = \"(.+)\"\n",
        (ROOT / "pyproject.toml").read_text(),
    )
    assert declared is not None
    assert declared.groups() == ("django_idempotency", PLUGIN)
    assert callable(importlib.import_module(declared[2]).assert_idempotent)
    for found in entry_points(group="pytest11", name="django_idempotency"):  # where it is installed
        assert found.value == PLUGIN


def test_built_metadata_declares_it() -> None:
    """The build backend's output from pyproject.toml declares it."""
    core = pytest.importorskip("hatchling.metadata.core", reason="only where the package is built")
    plugins = pytest.importorskip("hatchling.plugin.manager")
    metadata = core.ProjectMetadata(str(ROOT), plugins.PluginManager())
    assert metadata.core.entry_points["pytest11"] == {"django_idempotency": PLUGIN}


def test_with_django(shop: Shop) -> None:
    """Every fixture works."""
    assert shop.run(WITH_DJANGO, "--ds=shop_settings") == {"passed": 8, "xfailed": 1}


def test_without_django(shop: Shop) -> None:
    """The plugin may be present and unused."""
    assert shop.run(WITHOUT, "-p", "no:django", "-p", "no:hypothesispytest") == {"passed": 2}


def test_its_fixtures_are_visible_everywhere(shop: Shop) -> None:
    """pytest --fixtures shows each with its first line."""
    shown = shop.pytest("-p", "no:django", "--fixtures").stdout.str()
    for name in (
        "override_idempotency",
        "idempotency_disabled",
        "assert_idempotent",
        "recording_store",
    ):
        assert re.search(rf"^{name} -- .*pytest_plugin.py:\d+\n    [A-Z]", shown, re.MULTILINE)
