"""A folder imports only folders of inner rings, and no modules import each other in a circle.

The test reads every import of every module, including those inside functions and for the type checker.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "django_idempotency"
ROOT = Path(__file__).resolve().parent.parent / PACKAGE

#: Drivers: a store may import its own, other modules none.
DRIVERS = frozenset({"redis", "boto3", "botocore", "psycopg", "psycopg2", "MySQLdb", "pymysql", "django_redis"})
#: The number of modules that may be in the package's root beside `__init__`.
LOOSE = 8


@dataclass(frozen=True)
class Row:
    """What a folder, or a module of the root, may import: of ours and of others'."""

    ours: frozenset[str]
    others: frozenset[str]


def row(ours: str = "", others: str = "") -> Row:
    return Row(frozenset(ours.split()), frozenset(others.split()))


#: From the innermost ring outwards: a row names only rows above it. The longest prefix of a module's name decides.
#: CONTRIBUTING's picture is drawn from this table: `make pictures`.
RINGS: dict[str, dict[str, Row]] = {
    "decisions and values": {
        "profiles": row(),
        "core": row("profiles"),
        "errors": row(),
        "serialization": row(),
        "concurrency": row(others="asgiref"),
    },
    "stores": {
        "models": row("core", "django"),
        "migrations": row("models", "django"),
        "stores": row("concurrency core errors", "django"),
        "stores.orm": row("concurrency core errors models stores", "django"),
        "stores.redis": row("concurrency core errors stores", "django redis"),
        "stores.dynamodb": row("concurrency core errors stores", "boto3 botocore django"),
        "stores.layered": row("concurrency core errors stores"),
        "stores.sealed": row("core stores", "cryptography django"),
    },
    "one call under a key, without Django": {
        "engine": row("concurrency core errors stores"),
        "selectors": row("core errors", "jmespath"),
        "messages": row("errors"),
    },
    "the engine in a Django project": {
        "conf": row("core profiles", "django"),
        "signals": row("", "django"),
        "scopes": row("core errors", "asgiref django"),
        "realms": row("core errors", "django"),
        "instrumentation": row("conf core engine errors signals", "django opentelemetry prometheus_client"),
        "inspection": row("core errors serialization", "django"),
        "runtime": row(
            "concurrency conf core engine errors instrumentation stores stores.layered stores.sealed", "asgiref django"
        ),
        # An app of its own.
        "steps": row(
            "concurrency conf core engine errors inspection instrumentation models runtime serialization stores stores.orm"
            " stores.sealed",
            "asgiref django",
        ),
    },
    "what requests and calls have in common": {
        "http": row(
            "concurrency conf core engine errors instrumentation profiles realms runtime scopes selectors steps stores",
            "asgiref django django_ratelimit rest_framework",
        ),
        "functions": row(
            "concurrency conf core engine errors instrumentation realms runtime selectors serialization steps",
            "asgiref django jmespath",
        ),
    },
    "entry points": {
        "batches": row("core errors functions selectors", "django"),
        "graphql": row("concurrency conf core errors http", "asgiref django graphql"),
        "ninja": row("concurrency core errors http steps", "asgiref django ninja ninja_extra"),
        "rest_framework": row("concurrency conf core errors http steps", "adrf asgiref django rest_framework"),
        "middleware": row(
            "concurrency conf core errors graphql http instrumentation rest_framework steps", "asgiref django"
        ),
        "cors": row("conf http"),
        "decorators": row("conf core errors graphql http ninja rest_framework", "asgiref django"),
        "forms": row("conf core decorators errors http", "django"),
        "templatetags": row("forms", "django"),
        PACKAGE: row("batches core decorators functions realms"),
        # An app of its own: it shares the columns of the records' table, and not the way they are stored.
        "audit": row(
            "concurrency conf core engine errors instrumentation models runtime stores stores.orm stores.sealed",
            "django",
        ),
        "outbox": row("errors inspection instrumentation models runtime stores stores.sealed", "django"),
        # Another.
        "client": row(
            "concurrency conf core errors functions inspection instrumentation models runtime stores stores.orm stores.sealed",
            "asgiref django",
        ),
        "client.httpx": row("client", "httpx"),
        "client.requests": row("client errors", "requests urllib3"),
    },
    "what looks at all of it": {
        "testing": row(
            "conf core engine errors http models runtime signals steps stores", "asgiref django hypothesis pytest"
        ),
        "testing.schemathesis": row("testing", "django schemathesis"),
        "checks": row(
            "audit client conf core cors errors functions graphql http inspection instrumentation middleware models outbox profiles realms rest_framework"
            " runtime scopes selectors steps stores stores.orm stores.sealed",
            "asgiref django rest_framework",
        ),
        "publishing": row("checks conf core errors http profiles", "django"),
        "ninja.openapi": row("errors http publishing", "django ninja"),
        "rest_framework.openapi": row("publishing rest_framework", "drf_spectacular"),
        "urls": row("publishing", "django"),
        "monitoring": row(),
        "management": row(
            "audit checks client conf core engine errors http inspection instrumentation monitoring outbox publishing runtime steps stores"
            " stores.sealed",
            "django",
        ),
        "debug_toolbar": row("core engine http models signals stores", "debug_toolbar django"),
        "client.management": row("client management", "django"),
        "steps.management": row("conf core errors functions instrumentation management runtime steps", "django"),
        "outbox.management": row("conf errors management outbox stores.orm", "django"),
        "admin": row("conf core errors inspection instrumentation models runtime stores stores.orm", "django"),
        "audit.admin": row("admin audit core inspection models stores", "django"),
        "steps.admin": row("admin core models steps stores", "django"),
        "apps": row("checks engine instrumentation", "django"),
    },
}
ROWS = {name: allowed for ring in RINGS.values() for name, allowed in ring.items()}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".") or PACKAGE: path
    for path in sorted(ROOT.rglob("*.py"))
}


def row_of(name: str) -> str | None:
    """Return the row of a module (without the package's name), or `None`."""
    while name and name not in ROWS:
        name = name.rpartition(".")[0]
    return name or None


@cache
def imports(name: str, text: str) -> list[tuple[int, str, bool]]:
    """Return line, module (ours without the package's name) and whether it is ours, of each import."""
    return list(_imports(name, text))


def _imports(name: str, text: str) -> Iterator[tuple[int, str, bool]]:
    path = MODULES.get(name, ROOT / f"{name.replace('.', '/')}.py")
    package = [PACKAGE, *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # "from . import x" imports a sibling; "from .a import x" may import a name or a module: check which.
            found = [f"{module}.{a.name}" if inside(f"{module}.{a.name}") in MODULES else module for a in node.names]
        else:
            continue
        for each in found:
            ours = each == PACKAGE or each.startswith(f"{PACKAGE}.")
            yield node.lineno, inside(each) if ours else each.partition(".")[0], ours


def inside(name: str) -> str:
    """Return one of our modules' names without the package's."""
    return name.removeprefix(f"{PACKAGE}.")


def crossings(name: str, text: str) -> list[str]:
    """Say, for each import that crosses a ring, what it is and what to do."""
    home = row_of(name)
    if home is None:
        return [f"{name} lies in no ring. Move it into a folder, or give its folder a row."]
    allowed, said = ROWS[home], []
    for line, module, ours in imports(name, text):
        if ours and row_of(module) not in {home, *allowed.ours}:
            said.append(
                f"{name}:{line} imports {module}. {home} may know {', '.join(sorted(allowed.ours)) or 'nothing of ours'}. "
                "Move the decision inwards, or hand the value in."
            )
        elif not ours and module not in sys.stdlib_module_names and module not in allowed.others:
            said.append(
                f"{name}:{line} imports {module}. Here only the standard library"
                f"{''.join(f' and {other}' for other in sorted(allowed.others))} may be used: if it needs more, the design is wrong."
            )
    return said


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, or nothing."""
    done: set[str] = set()

    def follow(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        for other in sorted(graph.get(module, ())):
            if found := follow(other, [*way, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := follow(module, []))), [])


def test_no_import_crosses_a_ring() -> None:
    """No module imports another from a ring further out, and each is in a ring."""
    assert [each for name, path in MODULES.items() for each in crossings(name, path.read_text())] == []


def test_no_circle() -> None:
    """A module that imports another can be read after it."""
    graph = {
        name: {module for _, module, ours in imports(name, path.read_text()) if ours and module != name}
        for name, path in MODULES.items()
    }
    assert circle(graph) == []


def test_no_arrow_points_outwards() -> None:
    """A row names only rows above it."""
    names = list(ROWS)
    outwards = [(name, other) for n, name in enumerate(names) for other in ROWS[name].ours if other not in names[:n]]
    assert outwards == []


def test_nothing_is_allowed_in_vain() -> None:
    """Each row is for something that exists, and uses everything that it may import."""
    used: dict[str, set[str]] = {name: set() for name in ROWS}
    for name, path in MODULES.items():
        home = row_of(name)
        assert home is not None
        used[home] |= {
            row_of(module) or module if ours else module for _, module, ours in imports(name, path.read_text())
        }
    assert {name for name in ROWS if row_of(name) != name or name not in MODULES} == set()
    vain = {name: (allowed.ours | allowed.others) - used[name] for name, allowed in ROWS.items()}
    assert {name: some for name, some in vain.items() if some} == {}


def test_drivers_stay_in_their_stores() -> None:
    """No row but a store's may import a driver."""
    assert {name for name, allowed in ROWS.items() if allowed.others & DRIVERS} == {"stores.redis", "stores.dynamodb"}


def test_few_loose_modules() -> None:
    """A module is in a folder unless its path in the root is public, or Django expects it there."""
    loose = {path.stem for path in ROOT.glob("*.py")} - {"__init__"}
    assert len(loose) <= LOOSE, sorted(loose)


@pytest.mark.parametrize(
    ("module", "text", "crosses"),
    [
        ("core.rules", "import math\nfrom .records import Record", False),
        ("core.rules", "from django.utils import timezone", True),
        ("core.rules", "def f():\n    import redis", True),  # inside a function counts
        (
            "core.rules",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..stores.base import Guard",
            True,
        ),
        ("core.rules", "from ..errors import LostRace", True),
        ("errors", "from .core import rules", True),
        ("helpers", "import math", True),  # in no ring
        ("stores.orm.store", "from django.db import Error\nfrom ...models import IdempotencyRecord", False),
        ("stores.orm.store", "from ... import conf", True),
        ("stores.orm.store", "from ...engine.operation import Operation", True),
        ("stores.orm.store", "import redis", True),
        ("stores.redis.store", "import redis\nfrom ..base import BaseStore", False),
        ("stores.redis.store", "from ..orm import ORMStore", True),
        ("stores.base", "from .orm import ORMStore", True),
        ("engine.operation", "from ..stores.base import BaseStore", False),
        ("engine.operation", "from ..stores import base", False),
        ("engine.operation", "from ..stores.orm import ORMStore", True),
        ("engine.operation", "import django", True),
        ("engine.operation", "from django_idempotency.http import keys", True),
        ("engine.operation", "from .. import Policy", True),  # the package itself, which imports all of it
        ("functions.call", "from ..http.keys import parse_key", True),
        ("models", "from . import conf", True),
        ("conf", "from .runtime.registry import stores", True),
        ("middleware", "from .http.exchange import Exchange", False),
        ("middleware", "import redis", True),
    ],
)
def test_the_test(module: str, text: str, crosses: bool) -> None:
    """The reader of imports sees each way to cross a ring."""
    assert bool(crossings(module, text)) is crosses


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),  # twice is not a circle
        ({"a": {"b"}, "b": {"a"}}, ["a", "b", "a"]),
        ({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}}, ["b", "c", "d", "b"]),
    ],
)
def test_the_finder_of_circles(graph: dict[str, set[str]], found: list[str]) -> None:
    """The finder reports where the circle is, and nothing else as one."""
    assert circle(graph) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        PACKAGE,
        *(f"{PACKAGE}.{name}" for name in ("conf", "runtime.registry", "stores.orm", "stores.dynamodb", "testing")),
    ],
)
def test_importing_loads_no_model_and_no_driver(module: str) -> None:
    """The package and what settings may name can be imported before Django is set up."""
    script = (
        "import sys, importlib; importlib.import_module(sys.argv[1]); "
        f"print(*sorted(({set(DRIVERS)!r} | {{'rest_framework', 'ninja', 'graphql', '{PACKAGE}.models', 'django.contrib.auth.models'}}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, module], cwd=ROOT.parent, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ""
