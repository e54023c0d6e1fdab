"""A verb and its async twin are the same code but for `await`: a difference is listed with its
reason, or is drift.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent / "django_idempotency"

Function = ast.FunctionDef | ast.AsyncFunctionDef

_ENTERS = "what stands around the work differs: a transaction there, a cancellation here"

#: Twins that are not the same code, and why they cannot be. Decisions do not belong in them.
DIFFERENT = {
    "contrib/batches/running.py process_batch": "an async one also takes an async iterable",
    "contrib/client/exchange.py Exchange.run": "a coroutine that is closed can await nothing",
    "functions/handle.py Handle.answer": "each refuses the other's functions",
    "http/admission.py admit": "a request knows its user by another name in async code",
    "http/run.py run": _ENTERS,
    "http/run.py conclude": "async code holds no transaction whose COMMIT it could wait for",
    "functions/running.py run": _ENTERS,
    "engine/bracket.py _bracket": _ENTERS,
    "contrib/operations.py OperationCall._run": _ENTERS,
    "middleware.py IdempotencyMiddleware.process_view": "the async one hands sync views to the "
    "other",
    "contrib/operations.py OperationCall.enter": "a request knows its user by another name in "
    "async code",
    "runtime/transactions.py refuse_open_transactions": "the async one hands over to the thread "
    "of the request",
    "contrib/steps/actions.py Call.run": "each refuses, or drives, the other's functions",
    "contrib/tools/decorator.py Tool.call": _ENTERS,
    "testing/calling.py ConcurrentCall.make": "a thread sleeps, a task awaits, and each counts "
    "its own time",
}


class Same(ast.NodeTransformer):
    """Rewrites an async function as its sync twin: no `await`, no leading `a`, no docstring, no hop
    into a thread.
    """

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def _bare(self, name: str) -> str:
        lead = name[: len(name) - len(name.lstrip("_"))]
        rest = name[len(lead) :]
        return lead + rest[1:] if rest.startswith("a") and lead + rest[1:] in self._names else name

    def visit_Await(self, node: ast.Await) -> Any:
        return self.visit(node.value)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self.generic_visit(ast.For(node.target, node.iter, node.body, node.orelse))

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        return self.generic_visit(ast.With(node.items, node.body))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("time" if node.id == "asyncio" else self._bare(node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Attribute(self.visit(node.value), self._bare(node.attr), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)

    def visit_Call(self, node: ast.Call) -> Any:
        """Look through run_to_completion(x), sync_to_async(x)(…), in_thread(x, …),
        in_database_thread(x, …), and read threads.asettle(x, …) as x.settle(…).
        """
        called = node.func
        if (
            isinstance(called, ast.Attribute)
            and isinstance(called.value, ast.Name)
            and called.value.id == "threads"
        ):
            method = ast.Attribute(node.args[0], called.attr, ast.Load())
            return self.visit(ast.Call(method, node.args[1:], node.keywords))
        if isinstance(called, ast.Name) and called.id == "run_to_completion":
            return self.visit(node.args[0])
        if (
            isinstance(called, ast.Call)
            and isinstance(called.func, ast.Name)
            and called.func.id == "sync_to_async"
        ):
            return self.generic_visit(ast.Call(called.args[0], node.args, node.keywords))
        if isinstance(called, ast.Name) and called.id in {"in_thread", "in_database_thread"}:
            return self.generic_visit(ast.Call(node.args[0], node.args[1:], []))
        return self.generic_visit(node)


def same(function: Function, names: set[str]) -> str:
    """Return what must be equal in both twins."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    reader = Same(names)
    return " ".join(ast.dump(reader.visit(deepcopy(node))) for node in (function.args, *body))


def twins(path: Path) -> Iterator[tuple[str, Function, Function]]:
    """Yield each function that has an async twin beside it."""
    yield from _twins(ast.parse(path.read_text()).body, f"{path.relative_to(ROOT)} ")


def _twins(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Function, Function]]:
    found = {
        node.name: node
        for node in body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    for name, function in found.items():
        bare = name.lstrip("_")
        twin = found.get(f"{name[: len(name) - len(bare)]}a{bare}")
        if isinstance(function, ast.FunctionDef) and isinstance(twin, ast.AsyncFunctionDef):
            yield f"{prefix}{name}", function, twin
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _twins(node.body, f"{prefix}{node.name}.")


ALL = {
    name: (function, twin)
    for path in sorted(ROOT.rglob("*.py"))
    for name, function, twin in twins(path)
}
#: Every name that has a twin somewhere: `self.course.acompleted` is the twin of
#: `self.course.completed`. `send_robust` is Django's.
NAMES = {name.rpartition(".")[2].rpartition(" ")[2] for name in ALL} | {
    "send_robust",
    "settle",
}


def calls_its_twin(twin: Function, name: str) -> bool:
    """Does the async one only call the sync one? Then nothing is written twice."""
    body = twin.body[1:] if ast.get_docstring(twin) is not None else twin.body
    nodes = list(ast.walk(ast.Module(body, [])))
    called = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    called += [node.id for node in nodes if isinstance(node, ast.Name)]
    return (
        len(body) == 1
        and isinstance(body[0], ast.Return)
        and name.rpartition(" ")[2].rpartition(".")[2] in called
    )


@pytest.mark.parametrize("name", ALL)
def test_twins(name: str) -> None:
    """Twins are the same but for `await`, or are listed with the reason; twins that are the same
    are not listed.
    """
    function, twin = ALL[name]
    alike = calls_its_twin(twin, name) or same(function, NAMES) == same(twin, NAMES)
    assert alike is not (name in DIFFERENT), (
        f"Is {name} to decide? Move the decision into one place for both."
    )


def test_the_list_names_what_there_is() -> None:
    """No reason outlives its twins."""
    assert set(DIFFERENT) <= set(ALL)


@pytest.mark.parametrize(
    ("twin", "alike"),
    [
        (
            (
                "async def aread(self, key):\n    'See read().'\n    return await "
                "self.store.aread(key)"
            ),
            True,
        ),
        (
            (
                "async def aread(self, key):\n    return await "
                "run_to_completion(self.store.aread(key))"
            ),
            True,
        ),
        ("async def aread(self, key):\n    return await sync_to_async(self.store.read)(key)", True),
        (
            (
                "async def aread(self, key: str) -> int:\n    return await "
                "in_thread(self.store.read, key, close=end)"
            ),
            True,
        ),
        ("async def aread(self, key):\n    return await self.store.aread(key) or None", False),
        ("async def aread(self, key):\n    return await self.store.apeek(key)", False),
    ],
)
def test_the_test(twin: str, alike: bool) -> None:
    """The reader looks through what async code must write differently, and through nothing else."""
    function = ast.parse("def read(self, key):\n    return self.store.read(key)").body[0]
    parsed = ast.parse(twin).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert isinstance(parsed, ast.AsyncFunctionDef)
    assert (same(function, {"read", "peek"}) == same(parsed, {"read", "peek"})) is alike
