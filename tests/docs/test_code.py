"""The code on the pages compiles, and uses names that exist."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

from django_idempotency import aprocess_batch, conf, execution, idempotent_function, process_batch
from django_idempotency.core.policy import FIELD_NAMES

from .pages import ROOT, Block, blocks, pages

OURS = ("django_idempotency", "testproject")
#: What is called on the pages, and the keywords that it takes.
KEYWORDS = {
    "Policy": set(FIELD_NAMES),
    "idempotent": set(FIELD_NAMES),
    **{
        function.__name__: set(inspect.signature(function).parameters)
        for function in (execution, idempotent_function, process_batch, aprocess_batch)
    },
}
EXAMPLES = [
    pytest.param(block, id=f"{page.relative_to(ROOT).as_posix()}:{block.line}")
    for page in (*pages(), ROOT / "README.md")
    for block in blocks(page)
    if block.language in ("python", "pycon", "py")
]


def tree(block: Block) -> ast.Module:
    return ast.parse(dedent(block.code))


@pytest.mark.parametrize("block", EXAMPLES)
def test_it_compiles(block: Block) -> None:
    """Also what stands in the middle of a class."""
    compile(tree(block), "<docs>", "exec", dont_inherit=True)


@pytest.mark.parametrize("block", EXAMPLES)
def test_its_imports_exist(block: Block) -> None:
    """Those from this package and from the testproject."""
    for node in ast.walk(tree(block)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            module = import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    import_module(f"{node.module}.{alias.name}")  # a module of that name


@pytest.mark.parametrize("block", EXAMPLES)
def test_its_fields_exist(block: Block) -> None:
    """Whatever is called with a keyword takes it: a policy, a decorator, a batch."""
    for node in ast.walk(tree(block)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KEYWORDS:
            assert {keyword.arg for keyword in node.keywords} <= KEYWORDS[node.func.id]


@pytest.mark.parametrize("block", EXAMPLES)
def test_its_settings_exist(block: Block) -> None:
    """`IDEMPOTENCY = {...}` has settings of ours."""
    for node in ast.walk(tree(block)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if targets == [conf.NAME]:
                assert {ast.literal_eval(key) for key in node.value.keys if key} <= set(conf.DEFAULTS)


DRAWINGS = [
    pytest.param(block, id=f"{page.relative_to(ROOT).as_posix()}:{block.line}")
    for page in pages()
    for block in blocks(page)
    if block.language == "text"
]


@pytest.mark.parametrize("block", DRAWINGS)
def test_a_drawing_fits(block: Block) -> None:
    """Into the column of a page, without a bar to scroll."""
    assert max(map(len, block.code.splitlines())) <= 80


def test_there_are_examples() -> None:
    """The pages were found."""
    assert len(EXAMPLES) > 30


@pytest.mark.parametrize("page", pages(), ids=lambda page: Path(page).name)
def test_fences_are_closed(page: Path) -> None:
    """An open one would swallow the rest of the page."""
    assert page.read_text(encoding="utf-8").count("\n```") % 2 == 0
