"""Every message of a check: one class, found somewhere and tested."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import django_idempotency
from django_idempotency.stores.check_messages import Finding

ROOT = Path(__file__).parents[2]
PACKAGE = Path(django_idempotency.__file__).parent

for path in PACKAGE.rglob("*.py"):
    if "(Finding):" in path.read_text():
        import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
KINDS = Finding.__subclasses__()


def test_every_code_is_one_check() -> None:
    """A code is a letter and three digits, and no two checks have the same."""
    codes = Counter(kind.__name__ for kind in KINDS)
    assert [
        code for code, count in codes.items() if count > 1 or not re.fullmatch(r"[EWI]\d{3}", code)
    ] == []


def test_every_check_can_happen_and_is_tested() -> None:
    """Every code has a place that finds it and a test that names it."""
    package = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    found = Counter(re.findall(r"\b[EWI]\d{3}\b(?!\(Finding)", package))
    tests = (
        *Path(__file__).parent.glob("test_*.py"),
        *Path(__file__).parents[1].glob("contrib/*/test_checks.py"),
    )
    testing = "".join(path.read_text() for path in tests)
    assert [kind.__name__ for kind in KINDS if not found[kind.__name__]] == []
    assert [kind.__name__ for kind in KINDS if f'"{kind.__name__}"' not in testing] == []


def test_every_hint_names_what_to_type() -> None:
    """Every hint is an imperative, without Markdown that the docs would swallow."""
    verb = re.compile(r"\b(Type|type|Put|Move|Keep|Take|Add|Swap|Did you mean)\b")
    assert [kind.__name__ for kind in KINDS if not verb.search(kind.texts()[1])] == []
    assert [kind.__name__ for kind in KINDS if re.search("[`|]", "".join(kind.texts()))] == []
