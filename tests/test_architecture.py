"""Folders import downwards, the core imports nothing of contrib, and no modules import each other
in a circle.

The test reads every import of every module, including those inside functions and for the type
checker.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "django_idempotency"
ROOT = Path(__file__).resolve().parent.parent / PACKAGE

#: Drivers: a store may import its own, and a publisher of the outbox AWS's; other modules none.
DRIVERS = frozenset(
    {"redis", "boto3", "botocore", "psycopg", "psycopg2", "MySQLdb", "pymysql", "django_redis"}
)
#: The number of modules that may be in the package's root beside `__init__`.
LOOSE = 8


#: From the bottom upwards: what a layer's modules import lies in it or below it. CONTRIBUTING's
#: picture is drawn from this table (`make pictures`). The longest prefix of a module's name
#: decides.
LAYERS: dict[str, tuple[str, ...]] = {
    "errors": ("errors",),
    "core": ("core",),
    "stores": ("models", "migrations", "stores"),
    "engine": ("engine",),
    "http": (
        "conf",
        "signals",
        "scopes",
        "instrumentation",
        "inspection",
        "runtime",
        "http",
    ),
    "entry points": ("functions", "rest_framework", "decorators", "middleware", PACKAGE),
    "operators' tools": ("admin", "api", "checks", "management", "testing", "apps"),
    "contrib": ("contrib",),
}
LAYER_OF = {
    prefix: number for number, prefixes in enumerate(LAYERS.values()) for prefix in prefixes
}

#: What is not ours and not the standard library, by prefix. The longest decides; a store may import
#: its own driver.
OTHERS = {
    "errors": "",
    "core": "",
    "core.concurrency": "asgiref",
    "core.expressions": "jmespath",
    "models": "django",
    "migrations": "django",
    "stores": "django",
    "stores.redis": "django redis",
    "stores.dynamodb": "boto3 botocore django",
    "stores.layered": "django",
    "engine": "",
    "conf": "django",
    "signals": "django",
    "scopes": "asgiref django",
    "api": "",
    "instrumentation": "django",
    "inspection": "django",
    "runtime": "asgiref django",
    "http": "asgiref django rest_framework",
    "functions": "asgiref django jmespath",
    "rest_framework": "asgiref django rest_framework",
    "decorators": "asgiref django",
    "middleware": "asgiref django",
    PACKAGE: "",
    "admin": "django",
    "checks": "asgiref django",
    "management": "django",
    "testing": "asgiref django hypothesis pytest",
    "testing.schemathesis": "django schemathesis",
    "apps": "django",
    "contrib": "asgiref django",
    "contrib.adrf": "asgiref django",
    "contrib.at_rest.sealed": "cryptography django",
    "contrib.client.httpx": "httpx",
    "contrib.client.requests": "requests urllib3",
    "contrib.client.rules": "",
    "contrib.steps.rules": "",
    "contrib.fingerprints": "django rfc8785",
    "contrib.graphql": "asgiref django graphql",
    "contrib.grpc": "django google grpc",
    "contrib.metrics": "django opentelemetry prometheus_client",
    "contrib.modern_rest": "asgiref django dmr",
    "contrib.ninja": "asgiref django ninja ninja_extra",
    "contrib.ninja.openapi": "django ninja",
    "contrib.outbox.publishers.aws": "boto3 botocore",
    "contrib.outbox.publishers.bodies": "cloudevents",
    "contrib.outbox.publishers.kafka": "confluent_kafka",
    "contrib.outbox.publishers.webhooks": "django httpx standardwebhooks",
    "contrib.publishing.spectacular": "drf_spectacular",
    "contrib.rest": "rest_framework",
    "contrib.tools": "asgiref django",
    "contrib.tools.sdk": "django fastmcp mcp",
}

#: Stores that are named by BACKEND: nothing imports them, so that each can be deleted.
LEAVES = ("stores.redis", "stores.dynamodb", "stores.layered")
#: What a project with its records in a database does not need either → all that stands on it, and
#: is deleted together with it.
SHARED = {
    "stores.key_value": ("stores.redis", "stores.dynamodb", "contrib.at_rest"),
    "stores.memory": ("testing.contract",),
}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")
    or PACKAGE: path
    for path in sorted(ROOT.rglob("*.py"))
}


def longest_prefix(name: str, table: Mapping[str, Any]) -> str | None:
    """Return the longest prefix of a module's name (without the package's) that a table has, or
    `None`.
    """
    while name and name not in table:
        name = name.rpartition(".")[0]
    return name or None


@cache
def imports(name: str, text: str) -> list[tuple[int, str, bool]]:
    """Return line, module (ours without the package's name) and whether it is ours, of each
    import.
    """
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
            # "from . import x" imports a sibling; "from .a import x" may import a name or a module:
            # check which.
            found = [
                f"{module}.{a.name}" if inside(f"{module}.{a.name}") in MODULES else module
                for a in node.names
            ]
        else:
            continue
        for each in found:
            ours = each == PACKAGE or each.startswith(f"{PACKAGE}.")
            yield node.lineno, inside(each) if ours else each.partition(".")[0], ours


def inside(name: str) -> str:
    """Return one of our modules' names without the package's."""
    return name.removeprefix(f"{PACKAGE}.")


def crossings(name: str, text: str) -> list[str]:
    """Say, for each import that points upwards or is nobody's business here, what it is and what to
    do.
    """
    home, known = longest_prefix(name, LAYER_OF), longest_prefix(name, OTHERS)
    if home is None or known is None:
        return [
            (
                f"{name} lies in no layer. Move it into a folder, or name its folder in LAYERS "
                "and OTHERS."
            )
        ]
    said, others = [], OTHERS[known].split()
    for line, module, ours in imports(name, text):
        if ours and is_upwards(home, module):
            said.append(
                f"{name}:{line} imports {module}, which lies above it. Move the decision "
                "down, or hand the value in."
            )
        elif not ours and module not in sys.stdlib_module_names and module not in others:
            said.append(
                f"{name}:{line} imports {module}. Here only the standard "
                f"library{''.join(f' and {each}' for each in others)} "
                "may be used: if it needs more, the design is wrong."
            )
    return said


def is_upwards(home: str, module: str) -> bool:
    """Does an arrow from a prefix of `LAYERS` to a module point upwards?"""
    target = longest_prefix(module, LAYER_OF)
    return target is None or LAYER_OF[target] > LAYER_OF[home]


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


def is_below(name: str, folder: str) -> bool:
    """Is a module another, or in its folder?"""
    return f"{name}.".startswith(f"{folder}.")


def test_folders_import_downwards() -> None:
    """No module imports another from a layer above its own, and each is in a layer."""
    assert [
        each for name, path in MODULES.items() for each in crossings(name, path.read_text())
    ] == []


def test_nothing_needs_a_leaf() -> None:
    """A store that is named by BACKEND can be deleted: only its own folder imports it.

    What several share, only these do.
    """
    needed = {
        (name, leaf)
        for name, path in MODULES.items()
        for _, module, ours in imports(name, path.read_text())
        for leaf in (*LEAVES, *SHARED)
        if ours
        and is_below(module, leaf)
        and not any(is_below(name, other) for other in (leaf, *SHARED.get(leaf, ())))
    }
    assert needed == set()


def test_no_app_is_named() -> None:
    """Nothing outside contrib knows a module of it by its name: apps declare what they add."""
    named = [
        f"{name}:{node.lineno}"
        for name, path in MODULES.items()
        if not is_below(name, "contrib")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and str(node.value).startswith(f"{PACKAGE}.contrib")
    ]
    assert named == []


def test_no_circle() -> None:
    """A module that imports another can be read after it."""
    graph = {
        name: {
            module for _, module, ours in imports(name, path.read_text()) if ours and module != name
        }
        for name, path in MODULES.items()
    }
    assert circle(graph) == []


def test_nothing_is_allowed_in_vain() -> None:
    """Each prefix is something that exists, and uses every package that it may import."""
    used: dict[str, set[str]] = {name: set() for name in OTHERS}
    for name, path in MODULES.items():
        home = longest_prefix(name, OTHERS)
        assert home is not None
        used[home] |= {module for _, module, ours in imports(name, path.read_text()) if not ours}
    assert {
        name: set(others.split()) - used[name]
        for name, others in OTHERS.items()
        if set(others.split()) - used[name]
    } == {}
    assert {name for name in (*LAYER_OF, *OTHERS) if name not in MODULES} == set()


def test_drivers_stay_in_their_stores() -> None:
    """Nothing but a store may import a driver, and nothing but SQS's and EventBridge's publishers
    AWS's.
    """
    assert {name for name, others in OTHERS.items() if DRIVERS & set(others.split())} == {
        "contrib.outbox.publishers.aws",
        "stores.redis",
        "stores.dynamodb",
    }


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
            (
                "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..stores.base "
                "import Guard"
            ),
            True,
        ),
        ("core.rules", "from ..errors import LostRace", False),
        ("core.rules", "from ..stores.base import Guard", True),
        ("errors", "from .core import rules", True),
        ("helpers", "import math", True),  # in no ring
        (
            "stores.orm.store",
            "from django.db import Error\nfrom ...models import IdempotencyRecord",
            False,
        ),
        ("stores.orm.store", "from ... import conf", True),
        ("stores.orm.store", "from ...engine.operation import Operation", True),
        ("stores.orm.store", "import redis", True),
        ("stores.redis.store", "import redis\nfrom ..base import BaseStore", False),
        ("engine.operation", "from ..stores.base import BaseStore", False),
        ("engine.operation", "from ..stores import base", False),
        ("engine.operation", "from ..http.exchange import Exchange", True),
        ("engine.operation", "import django", True),
        ("engine.operation", "from django_idempotency.http import keys", True),
        # The package itself, which imports all of it.
        (
            "engine.operation",
            "from .. import Policy",
            True,
        ),
        ("functions.call", "from ..http.plan import Plan", False),
        ("http.exchange", "from ..functions.call import Call", True),
        ("http.exchange", "from ..contrib.batches import process_batch", True),
        ("models", "from . import conf", True),
        ("conf", "from .functions.call import Call", True),
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
        *(
            f"{PACKAGE}.{name}"
            for name in ("conf", "runtime.registry", "stores.orm", "stores.dynamodb", "testing")
        ),
    ],
)
def test_importing_loads_no_model_and_no_driver(module: str) -> None:
    """The package and what settings may name can be imported before Django is set up."""
    script = (
        "import sys, importlib; importlib.import_module(sys.argv[1]); "
        f"print(*sorted(({set(DRIVERS)!r} | {{'rest_framework', 'ninja', 'graphql', "
        f"'{PACKAGE}.models', 'django.contrib.auth.models'}}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, module],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == ""
