"""The code on the pages compiles, and uses names that exist."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from importlib import import_module
from textwrap import dedent

from django_idempotency import conf, idempotent_function
from django_idempotency.contrib.batches import aprocess_batch, process_batch
from django_idempotency.contrib.steps.durable import execution
from django_idempotency.core.policy import FIELDS
from django_idempotency.functions.decorator import OF_POLICY

from .pages import ROOT, Block, blocks, pages

OURS = ("django_idempotency", "testproject")
#: The callables on the pages, and the keywords that they take.
KEYWORDS = {
    "Policy": set(FIELDS),
    "idempotent": set(FIELDS),
    **{
        function.__name__: set(inspect.signature(function).parameters)
        for function in (execution, idempotent_function, process_batch, aprocess_batch)
    },
}
KEYWORDS["idempotent_function"] |= OF_POLICY
#: Place → a block of Python, and the same for drawings.
EXAMPLES = {
    f"{page.relative_to(ROOT).as_posix()}:{block.line}": block
    for page in (*pages(), ROOT / "README.md")
    for block in blocks(page)
    if block.language in ("python", "pycon", "py")
}
DRAWINGS = {
    f"{page.relative_to(ROOT).as_posix()}:{block.line}": block
    for page in pages()
    for block in blocks(page)
    if block.language == "text"
}


def tree(block: Block) -> ast.Module:
    return ast.parse(dedent(block.code))


def faults(find: Callable[[Block], object]) -> dict[str, object]:
    """Return what is wrong with the examples, by place."""
    return {place: wrong for place, block in EXAMPLES.items() if (wrong := find(block))}


def test_they_compile() -> None:
    """Examples compile, those from the middle of a class included."""

    def find(block: Block) -> object:
        try:
            compile(tree(block), "<docs>", "exec", dont_inherit=True)
        except SyntaxError as error:
            return error
        return None

    assert faults(find) == {}


def test_their_imports_exist() -> None:
    """Imports from this package and from the testproject exist."""

    def find(block: Block) -> object:
        return [
            f"{node.module}.{alias.name}"
            for node in ast.walk(tree(block))
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS
            for alias in node.names
            if not exists(str(node.module), alias.name)
        ]

    assert faults(find) == {}


def exists(module: str, name: str) -> bool:
    try:
        if not hasattr(import_module(module), name):
            import_module(f"{module}.{name}")  # a module of that name
    except ModuleNotFoundError:
        return False
    return True


def test_their_fields_exist() -> None:
    """A policy, a decorator or a batch takes each keyword that a page calls it with."""

    def find(block: Block) -> object:
        return [
            f"{node.func.id}({keyword.arg}=...)"
            for node in ast.walk(tree(block))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in KEYWORDS
            for keyword in node.keywords
            if keyword.arg not in KEYWORDS[node.func.id]
        ]

    assert faults(find) == {}


def test_their_settings_exist() -> None:
    """`IDEMPOTENCY = {...}` has only our settings."""

    def find(block: Block) -> object:
        return {
            key
            for node in ast.walk(tree(block))
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
            if [target.id for target in node.targets if isinstance(target, ast.Name)] == [conf.NAME]
            for key in map(ast.literal_eval, filter(None, node.value.keys))
        } - set(conf.defaults())

    assert faults(find) == {}


def test_settings_keep_what_a_project_has() -> None:
    """A list of Django's settings is added to: a reader who types it as printed keeps the rest."""

    def find(block: Block) -> object:
        return [
            target.id
            for node in ast.walk(tree(block))
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)
            for target in node.targets
            if isinstance(target, ast.Name) and target.id in ("INSTALLED_APPS", "MIDDLEWARE")
            if not any(isinstance(each, ast.Starred) for each in node.value.elts)
        ]

    assert faults(find) == {}


def test_drawings_fit() -> None:
    """Drawings fit into the column of a page, without a scroll bar."""
    assert {
        place for place, block in DRAWINGS.items() if max(map(len, block.code.splitlines())) > 80
    } == set()


#: The columns that fit into a page on a screen of 1280 pixels, and into a tab or an item of a list.
COLUMNS, INDENTED_COLUMNS = 120, 100
#: What is typed or shown in a terminal is wrapped by `docs/stylesheets/tables.css`.
WRAPPED = ("console", "http", "shell")


def test_code_fits() -> None:
    """No block has a scroll bar on a screen of 1280 pixels."""
    long = []
    for page in pages():
        lines = page.read_text(encoding="utf-8").splitlines()
        for block in blocks(page):
            indented = lines[block.line - 2].startswith(" ")
            most = INDENTED_COLUMNS if indented else COLUMNS
            if block.language not in WRAPPED and max(map(len, block.code.splitlines())) > most:
                long.append(f"{page.relative_to(ROOT).as_posix()}:{block.line}")
    assert long == []
    styles = (ROOT / "docs" / "stylesheets" / "tables.css").read_text(encoding="utf-8")
    assert all(f".language-{language}" in styles for language in WRAPPED)


def test_there_are_examples() -> None:
    """The test finds the pages."""
    assert len(EXAMPLES) > 30


def test_fences_are_closed() -> None:
    """Every fence is closed: an open one would swallow the rest of the page."""
    assert [
        page.name for page in pages() if page.read_text(encoding="utf-8").count("\n```") % 2
    ] == []
