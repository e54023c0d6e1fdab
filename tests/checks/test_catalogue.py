"""The table of checks equals the docs' page of checks."""

from __future__ import annotations

import re
from pathlib import Path

from django_idempotency.checks import catalogue
from django_idempotency.checks.catalogue import CATALOGUE as CORE
from django_idempotency.checks.catalogue.databases import DATABASES
from django_idempotency.checks.catalogue.routes import MIDDLEWARE, ROUTES
from django_idempotency.checks.catalogue.servers import DEPLOYED
from django_idempotency.checks.catalogue.settings import SETTINGS
from django_idempotency.checks.catalogue.stores import STORES
from django_idempotency.contrib.at_rest.checks import CHECKS as AT_REST
from django_idempotency.contrib.audit.checks import CHECKS as AUDIT
from django_idempotency.contrib.client.checks import CHECKS as CLIENT
from django_idempotency.contrib.cors.checks import CHECKS as CORS
from django_idempotency.contrib.graphql.checks import CHECKS as GRAPHQL
from django_idempotency.contrib.ninja.checks import CHECKS as NINJA
from django_idempotency.contrib.outbox.checks import CHECKS as OUTBOX
from django_idempotency.contrib.steps.checks import CHECKS as STEPS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "checks.md"
FOLDER = Path(catalogue.__file__).parent
PACKAGE = FOLDER.parent.parent
#: The core's, then those of the apps and of the integrations.
CATALOGUE = {**CORE, **AT_REST, **STEPS, **CLIENT, **OUTBOX, **AUDIT, **CORS, **NINJA, **GRAPHQL}


def row(code: str) -> str:
    """Return a check's line in the docs. Parts that differ between projects are in angle brackets."""
    message, hint = (re.sub(r"%\((\w+)\)s", r"<\1>", text).replace("<code>", code) for text in CATALOGUE[code])
    return f"| `{code}` | `{message}` | `{hint}` |"


def test_the_docs_have_every_check() -> None:
    """The docs match line by line, in the order of the table. To write them: print(*map(row, CATALOGUE), sep="\\n")."""
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| `[EWI]\d", line)]
    assert lines == [row(code) for code in CATALOGUE]


def test_every_code_is_one_check() -> None:
    """No code is in two parts of the catalogue."""
    parts = (
        SETTINGS,
        STORES,
        MIDDLEWARE,
        ROUTES,
        DATABASES,
        DEPLOYED,
        AT_REST,
        STEPS,
        CLIENT,
        OUTBOX,
        AUDIT,
        CORS,
        NINJA,
        GRAPHQL,
    )
    assert len(CATALOGUE) == sum(map(len, parts))


def test_every_check_can_happen_and_is_tested() -> None:
    """Every code has a place that finds it and a test that names it."""
    texts = {*FOLDER.iterdir(), PACKAGE / "stores" / "check_messages.py"}
    finding = "".join(path.read_text() for path in PACKAGE.rglob("*.py") if path not in texts)
    tests = (*Path(__file__).parent.glob("test_*.py"), *Path(__file__).parents[1].glob("contrib/*/test_checks.py"))
    testing = "".join(path.read_text() for path in tests)
    assert [code for code in CATALOGUE if f'"{code}"' not in finding] == []
    assert [code for code in CATALOGUE if f'"{code}"' not in testing] == []


def test_every_hint_names_what_to_type() -> None:
    """Every hint is an imperative, without Markdown that the docs would swallow."""
    verb = re.compile(r"\b(Type|type|Put|Move|Keep|Take|Add|Swap|Did you mean)\b")
    assert [code for code, (_, hint) in CATALOGUE.items() if not verb.search(hint)] == []
    assert [code for code, texts in CATALOGUE.items() if re.search("[`|]", "".join(texts))] == []
