"""Inner rings never import outer ones (design 2). Reads the imports of every module, wherever in it they stand."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "django_idempotency"
ROOT = Path(__file__).resolve().parent.parent / PACKAGE

#: Drivers: a store may know its own, others none.
DRIVERS = frozenset({"redis", "boto3", "botocore", "psycopg", "psycopg2", "MySQLdb", "pymysql", "django_redis"})


@dataclass(frozen=True)
class Ring:
    """What a part of the package may import: of ours (by prefix), and of others'."""

    number: int
    ours: tuple[str, ...]
    others: frozenset[str]


INNER = Ring(0, ("core",), frozenset())
STORE = ("core", "errors", "forking", "models", "stores", "threads")
DYNAMODB = ("stores.dynamodb", "stores.dynamodb_client", "stores.dynamodb_items")

#: The longest prefix of a module's name decides. What is not listed is outermost, and may import everything of ours.
RINGS = {
    "core": INNER,
    "errors": Ring(0, (), frozenset()),
    "forking": Ring(0, (), frozenset()),
    "models": Ring(1, ("core",), frozenset({"django"})),
    "migrations": Ring(1, ("models",), frozenset({"django"})),
    "stores": Ring(1, STORE, frozenset({"django", "asgiref"})),
    "stores.base": Ring(1, ("core", "errors", "threads"), frozenset()),
    "stores.swap": Ring(1, ("core", "errors", "stores.base", "stores.memory", "stores.sealing"), frozenset()),
    "stores.memory": Ring(1, ("core", "errors", "forking", "stores.base"), frozenset()),
    "stores.wrapping": Ring(1, ("core", "errors", "stores.base"), frozenset()),
    "stores.fronts": Ring(1, ("core", "errors", "forking"), frozenset()),
    "stores.layered": Ring(1, ("core", "errors", "forking", "stores", "threads"), frozenset()),
    "stores.sealing": Ring(1, ("core", "errors"), frozenset({"django"})),
    "stores.redis": Ring(
        1,
        ("core", "errors", "stores.base", "stores.memory", "stores.sealing", "stores.redis_client"),
        frozenset({"redis", "django_redis", "django", "asgiref"}),
    ),
    "stores.redis_client": Ring(
        1, ("errors", "forking", "stores.redis_cluster", "threads"), frozenset({"redis", "django", "asgiref"})
    ),
    "stores.redis_cluster": Ring(1, (), frozenset({"redis", "django"})),
    "stores.dynamodb": Ring(1, ("core", "errors", "stores.base", *DYNAMODB), frozenset()),
    "stores.dynamodb_client": Ring(1, ("errors", "forking", *DYNAMODB), frozenset({"boto3", "botocore", "django"})),
    "stores.dynamodb_items": Ring(1, ("core",), frozenset()),
    "stores.dynamodb_table": Ring(1, ("errors", *DYNAMODB), frozenset({"botocore"})),
    "threads": Ring(0, (), frozenset({"asgiref"})),
    "finishing": Ring(0, (), frozenset()),
    "engine": Ring(
        2,
        ("core", "errors", "deferring", "finishing", "stores.base", "heartbeat", "settling", "suspension", "waiting"),
        frozenset(),
    ),
    "waiting": Ring(2, ("forking",), frozenset()),
    "suspension": Ring(2, ("core", "errors", "stores.base"), frozenset()),
    "settling": Ring(2, ("core", "errors", "heartbeat", "suspension"), frozenset()),
    "deferring": Ring(2, ("errors", "forking", "notifying", "settling", "stores.base"), frozenset()),
    "heartbeat": Ring(2, ("core", "errors", "forking", "notifying"), frozenset()),
    "notifying": Ring(2, ("core", "forking", "stores.base"), frozenset()),
    "messages": Ring(2, ("errors",), frozenset()),
    "selecting": Ring(2, ("core", "errors", "selecting"), frozenset({"jmespath"})),
    "conf": Ring(3, ("core", "errors"), frozenset({"django"})),
    "switch": Ring(3, ("errors", "forking"), frozenset()),
    "registry": Ring(
        3,
        ("core", "errors", "conf", "stores.base", "stores.fronts", "stores.layered", "stores.wrapping"),
        frozenset({"django"}),
    ),
    "derivation": Ring(3, ("core", "errors", "conf", "engine"), frozenset()),
    "handles": Ring(3, ("core", "conf", "engine", "derivation"), frozenset()),
    # An app of its own: it shares the columns of the records' table, and nothing of how they are kept.
    "outbox": Ring(
        3,
        (
            "errors",
            "conf",
            "models",
            "redaction",
            "stores.base",
            "stores.faults",
            "management.arguments",
            "showing.ticked",
            "outbox",
        ),
        frozenset({"django"}),
    ),
    # For the tests of others: it may read what it tests, and needs no door.
    "testing": Ring(
        3,
        ("core", "errors", "models", "stores", "engine", "suspension", "testing"),
        frozenset({"django", "asgiref", "pytest", "hypothesis"}),
    ),
    # It stands outside every door, and listens.
    "testing.asserting": Ring(5, ("core", "conf", "registry", "switch", "testing"), frozenset({"django", "asgiref"})),
    "testing.calling": Ring(
        5, ("core", "errors", "engine", "signals", "http.responses", "testing"), frozenset({"django", "asgiref"})
    ),
    "testing.overriding": Ring(3, ("switch",), frozenset({"asgiref"})),
    "testing.pytest_plugin": Ring(3, ("conf", "registry", "switch", "testing"), frozenset({"pytest"})),
}

MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    """Return a module's name inside the package; "" is the package itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def ring_of(name: str) -> Ring | None:
    """Return the ring of the longest prefix that is listed."""
    while name:
        if name in RINGS:
            return RINGS[name]
        name = name.rpartition(".")[0]
    return None


def imports(path: Path, tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Yield line, module (ours without the package's name) and whether it is ours."""
    package = [PACKAGE, *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # "from . import x" imports a sibling; "from .a import x" may import a name or a module: look.
            found = [f"{module}.{a.name}" if is_module(f"{module}.{a.name}") else module for a in node.names]
        else:
            continue
        for name in found:
            ours = name == PACKAGE or name.startswith(f"{PACKAGE}.")
            yield node.lineno, name.removeprefix(PACKAGE).lstrip(".") if ours else name.partition(".")[0], ours


def is_module(name: str) -> bool:
    path = ROOT.parent.joinpath(*name.split("."))
    return name.startswith(f"{PACKAGE}.") and (path.with_suffix(".py").exists() or (path / "__init__.py").exists())


def crossings(path: Path, text: str) -> list[str]:
    """Say, for each import that crosses a ring, what it is and what to do."""
    name, said = name_of(path), []
    ring = ring_of(name)
    for line, module, ours in imports(path, ast.parse(text)):
        if ring is None:
            if not ours and module in DRIVERS:
                said.append(f"{path.name}:{line} imports the driver {module}. Only a store knows its driver.")
        elif ours and not any(module == allowed or module.startswith(f"{allowed}.") for allowed in ring.ours):
            said.append(
                f"{path.relative_to(ROOT)}:{line} imports {module or PACKAGE}, which lies further out. Ring {ring.number} may know "
                f"{', '.join(ring.ours) or 'nothing of ours'}. Move the decision inwards, or hand the value in."
            )
        elif not ours and module not in sys.stdlib_module_names and module not in ring.others:
            said.append(
                f"{path.relative_to(ROOT)}:{line} imports {module}. Here only the standard library"
                f"{''.join(f' and {other}' for other in sorted(ring.others))} may be used: if it needs more, the design is wrong."
            )
    return said


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rings(path: Path) -> None:
    """No module imports what lies further out than itself."""
    assert crossings(path, path.read_text()) == []


@pytest.mark.parametrize(
    ("module", "text", "crosses"),
    [
        ("core/rules.py", "import math\nfrom .records import Record", False),
        ("core/rules.py", "from django.utils import timezone", True),
        ("core/rules.py", "def f():\n    import redis", True),  # inside a function counts
        ("core/rules.py", "from ..errors import LostRace", True),
        ("errors.py", "from .core import rules", True),
        (
            "stores/orm.py",
            "from django.db import Error\nfrom ..models import IdempotencyRecord\nfrom . import faults",
            False,
        ),
        ("stores/orm.py", "from .. import conf", True),
        ("stores/orm.py", "from ..engine import Operation", True),
        ("stores/orm.py", "import redis", True),
        ("stores/redis.py", "import redis", False),
        ("stores/redis.py", "from .orm import ORMStore", True),
        ("engine.py", "from .stores.base import BaseStore", False),
        ("engine.py", "from .stores import base", False),
        ("engine.py", "from .stores.orm import ORMStore", True),
        ("engine.py", "import django", True),
        ("engine.py", "from django_idempotency.http import keys", True),
        ("models.py", "from . import conf", True),
        ("conf.py", "from .registry import stores", True),
        ("middleware.py", "from .engine import Operation\nimport rest_framework", False),
        ("middleware.py", "import redis", True),
    ],
)
def test_the_test(module: str, text: str, crosses: bool) -> None:
    """The reader of imports sees each way to cross a ring."""
    assert bool(crossings(ROOT / module, text)) is crosses


@pytest.mark.parametrize(
    "module",
    [PACKAGE, *(f"{PACKAGE}.{name}" for name in ("conf", "registry", "stores.orm", "stores.dynamodb", "testing"))],
)
def test_importing_loads_no_model_and_no_driver(module: str) -> None:
    """Before Django is set up, the package and what settings may name can be imported."""
    script = (
        "import sys, importlib; importlib.import_module(sys.argv[1]); "
        f"print(*sorted(({set(DRIVERS)!r} | {{'rest_framework', 'ninja', 'graphql', '{PACKAGE}.models', 'django.contrib.auth.models'}}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, module], cwd=ROOT.parent, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ""
