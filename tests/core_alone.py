"""Run the core's tests without the packages of optional apps: one case of each test that needs no server
of its own.

    python -m tests.core_alone [pytest arguments]
    python -m tests.core_alone --others  # prints the paths of all other tests

pyproject's dependency group `test-core` says which packages there are, with the extras `redis` and
`rest`. What else this environment has is refused to pytest, and to the processes that it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .support.extras import refused_without, refusing

ROOT = Path(__file__).resolve().parent.parent
#: A dependency group, and extras, as in the Makefile.
PACKAGES = ("test-core", "redis", "rest")

FOLDERS = (
    *(
        "admin",
        "checks",
        "core",
        "engine",
        "entry_points",
        "functions",
        "http",
        "inspection",
        "instrumentation",
    ),
    *("management", "runtime", "scopes", "stores"),
)
#: Modules of these folders that import a package more: the core's meeting with it is what they
#: test.
NEED_MORE = {
    "entry_points/test_connections.py": "adrf",
    "entry_points/test_shapes.py": "adrf",
    "entry_points/test_takeovers.py": "adrf",
    "entry_points/test_traced.py": "wrapt",
    "entry_points/test_unguarded.py": "graphql",
    "entry_points/test_unprinted.py": "sentry_sdk",
    "http/test_kinds.py": "ninja",
    "instrumentation/test_recipes.py": "sentry_sdk",
    "management/test_idempotency_routes.py": "ninja",
    "stores/dynamodb/test_store.py": "botocore",
}
#: pytest finds no plugin by itself here: some belong to what is refused.
PLUGINS = ("pytest_django.plugin", "xdist.plugin", "django_idempotency.testing.pytest_plugin")
MARKS = "(unit or any_database) and not (faults or needs or slow)"


def others() -> list[str]:
    """Return the paths of the tests that are not run here."""
    apart = {ROOT / "tests" / folder for folder in FOLDERS}
    found = [
        path
        for path in (ROOT / "tests").glob("*/")
        if path not in apart and (path / "__init__.py").exists()
    ]
    found += [
        *(ROOT / "tests").glob("test_*.py"),
        *(ROOT / "tests" / module for module in NEED_MORE),
    ]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--others"]:
        print(*others(), sep="\n")
        return 0
    environment = {
        **os.environ,
        "DATABASE": "sqlite",
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **refusing(refused_without(*PACKAGES)),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist=worksteal",
        "--one-case",
        "-m",
        MARKS,
    ]
    command += [f"-p{plugin}" for plugin in PLUGINS]
    command += [f"--ignore=tests/{module}" for module in NEED_MORE]
    command += [f"tests/{folder}" for folder in FOLDERS]
    return subprocess.run([*command, *arguments], cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
