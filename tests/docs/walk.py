"""Write the functions that the page on how it works walks through: `python -m tests.docs.walk`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .pages import DOCS, ROOT

PAGE = DOCS / "explanation/how-it-works.md"
PACKAGE = ROOT / "django_idempotency"
SOURCE = PACKAGE / "engine/bracket.py"
FIRST = "guarded"
LAST = "finished"
_QUOTE = re.compile(
    r"(<!-- from: django_idempotency/engine/bracket\.py -->\n\n```python\n).*?(^```$)",
    re.DOTALL | re.MULTILINE,
)
_STEP = re.compile(r"`(?:([\w/]+\.py)|(\w+)\(\))`")


def walked() -> str:
    """Return the bracket as it is: all from its first function to the end of its last one."""
    source = SOURCE.read_text(encoding="utf-8")
    functions = {
        node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
    }
    lines = source.splitlines(keepends=True)
    return "".join(lines[functions[FIRST].lineno - 1 : functions[LAST].end_lineno])


def steps() -> Iterator[str]:
    """Yield the lines that do something: not those that only say where one goes on."""
    source = walked()
    found = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign | ast.Return)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    ]
    for node in sorted(found, key=lambda node: node.lineno):
        yield ast.get_source_segment(source, node) or ""


def written(page: str) -> str:
    """Return the page with the functions as they are."""
    return _QUOTE.sub(lambda found: f"{found[1]}{walked()}{found[2]}", page)


def named(text: str) -> Iterator[tuple[str, str]]:
    """Yield the functions that a text names, each with the file that was named last before it."""
    file = ""
    for path, name in _STEP.findall(text):
        file = path or file
        if name:
            yield file, name


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
