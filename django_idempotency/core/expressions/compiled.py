"""Expressions of JMESPath: compiled where they are declared, so that a wrong one fails there and
not at the first payload.

JMESPath's interpreter walks Python objects as they are: nothing is copied, and values keep their
types. Names are looked up in mappings, and as public attributes of other objects (of a mapping that
is no dict, its properties); never a method, and never a name that begins with "_". A tuple counts
as a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import jmespath
from jmespath.exceptions import (
    EmptyExpressionError,
    JMESPathError,
    JMESPathTypeError,
    LexerError,
    ParseError,
)
from jmespath.visitor import Options, TreeInterpreter

from ..canonical.encoder import field_names
from ..selectors import Selector, looked_up, simple
from .functions import Functions, Unpackable, inflates, inflating_once, with_ours

Node = Any


class Interpreter(TreeInterpreter):
    """Walks one expression. It holds no state, so threads may share it."""

    def __init__(self, functions: Functions, dict_cls: type[Any] | None = None) -> None:
        super().__init__(Options(dict_cls=dict_cls, custom_functions=functions))

    def visit_field(self, node: Node, value: Any) -> Any:
        return looked_up(node["value"], value)

    def visit_comparator(self, node: Node, value: Any) -> Any:
        # A literal is a float, and 0.1 is less than Decimal("0.1"): their digits are equal.
        left, right = (self.visit(child, value) for child in node["children"])
        if isinstance(left, Decimal) and isinstance(right, float):
            right = Decimal(repr(right))
        elif isinstance(right, Decimal) and isinstance(left, float):
            left = Decimal(repr(left))
        children: Any = [
            {"type": "literal", "value": side, "children": []} for side in (left, right)
        ]
        compared: Any = {**node, "children": children}
        return super().visit_comparator(compared, value)

    def visit_index(self, node: Node, value: Any) -> Any:
        try:
            return value[node["value"]] if isinstance(value, (list, tuple)) else None
        except IndexError:
            return None

    def visit_slice(self, node: Node, value: Any) -> Any:
        return list(value[slice(*node["children"])]) if isinstance(value, (list, tuple)) else None

    def visit_projection(self, node: Node, value: Any) -> Any:
        return self._projected(node["children"][1], self.visit(node["children"][0], value))

    def visit_filter_projection(self, node: Node, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, (list, tuple)):
            return None
        kept = [
            element
            for element in base
            if not self._is_false(self.visit(node["children"][2], element))
        ]
        return self._projected(node["children"][1], kept)

    def visit_value_projection(self, node: Node, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if isinstance(base, Mapping):
            base = list(base.values())
        elif (names := field_names(type(base))) is not None:
            base = [getattr(base, name, None) for name in names]
        else:
            return None
        return self._projected(node["children"][1], base)

    def visit_flatten(self, node: Node, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, (list, tuple)):
            return None
        merged: list[Any] = []
        for element in base:
            merged.extend(element if isinstance(element, (list, tuple)) else [element])
        return merged

    def _projected(self, node: Node, base: Any) -> list[Any] | None:
        if not isinstance(base, (list, tuple)):
            return None
        return [found for element in base if (found := self.visit(node, element)) is not None]

    def _is_false(self, value: Any) -> bool:
        # Not `== []`: an object may compare in any way.
        return (
            value is None
            or value is False
            or (isinstance(value, (str, list, tuple, Mapping)) and len(value) == 0)
        )


class Expression(Selector):
    """A JMESPath expression.

    Custom `functions` (a subclass of jmespath's `Functions`, or an instance of one) are available
    in addition to ours; jmespath's own `options` contain them, and the class of what `{a: b}`
    makes. Raises `ValueError` for an invalid expression, an unknown function or too few arguments.
    """

    def __init__(
        self, expression: str, *, functions: Any = None, options: jmespath.Options | None = None
    ) -> None:
        if options is not None:
            if functions is not None and options.custom_functions is not None:
                raise ValueError(
                    "Custom functions are given twice: pass them in the options or as "
                    "functions, not both."
                )
            functions = functions or options.custom_functions
        tree, interpreter = _compiled(expression, functions, options.dict_cls if options else None)
        find: Callable[[Any], Any] = partial(getattr(interpreter, f"visit_{tree['type']}"), tree)
        if any(inflates(call["value"]) for call in _calls(tree)):
            find = inflating_once(find)
        found = set(_roots(tree))
        parts = _in_parts(tree)
        field = tree["value"] if tree["type"] == "field" else None
        roots = frozenset(name for name in found if name is not None)
        super().__init__(
            expression=expression,
            find=find,
            field=field,
            roots=roots,
            whole=None in found,
            in_parts=parts,
        )

    def _reason(self, error: Exception) -> str:
        if isinstance(error, JMESPathTypeError):  # its own text shows the value
            return (
                f"{error.function_name}() takes {' or '.join(error.expected_types)}, not "
                f"{error.actual_type}."
            )
        return str(error) if isinstance(error, Unpackable) else super()._reason(error)


def selector_of(expression: str | Callable[[Any], Any]) -> Selector:
    """Return the selector of an expression or of a function; a selector is returned unchanged.

    Raises `ValueError`.
    """
    return (
        expression
        if isinstance(expression, Selector)
        else simple(expression) or Expression(str(expression))
    )


@lru_cache(maxsize=512)
def _compiled(expression: str, custom: Any, dict_cls: Any) -> tuple[Node, Interpreter]:
    functions = with_ours(custom)
    try:
        tree: Node = jmespath.compile(expression).parsed
    except JMESPathError as error:
        raise ValueError(
            f"{expression!r} is not a JMESPath expression: {_fault(error, expression)}"
        ) from error
    for call in _calls(tree):
        _check_call(call, functions, expression)
    return tree, Interpreter(functions, dict_cls)


def _fault(error: JMESPathError, expression: str) -> str:
    if isinstance(error, EmptyExpressionError):
        return "it is empty."
    if isinstance(error, LexerError):
        return f"{error.message} at column {error.lexer_position + 1}."
    if isinstance(error, ParseError) and error.lex_position < len(expression):
        return f"{error.token_value!r} is not allowed at column {error.lex_position + 1}."
    return f"it ends too early, at column {len(expression) + 1}."


def _calls(node: Any) -> Iterator[Node]:
    if isinstance(node, dict):
        if node["type"] == "function_expression":
            yield node
        for child in node["children"]:
            yield from _calls(child)


def _check_call(call: Node, functions: Functions, expression: str) -> None:
    name = call["value"]
    given = len(call["children"])
    known = functions.FUNCTION_TABLE.get(name)
    if known is None:
        column = expression.find(f"{name}(") + 1
        raise ValueError(
            f"{expression!r} is not a JMESPath expression: there is no function {name}() "
            f"(column {column}). "
            f"There are {', '.join(sorted(functions.FUNCTION_TABLE))}."
        )
    takes = known["signature"]
    variadic = bool(takes) and bool(takes[-1].get("variadic"))
    if given < len(takes) or (given > len(takes) and not variadic):
        least = "at least " * variadic
        raise ValueError(
            f"{expression!r} is not a JMESPath expression: {name}() takes "
            f"{least}{len(takes)} argument(s), not {given}."
        )


#: Nodes of which only the first child is applied to the node's own input; the others are applied to
#: its result.
_CHAINS = frozenset(
    {
        "subexpression",
        "index_expression",
        "pipe",
        "projection",
        "filter_projection",
        "value_projection",
        "flatten",
    }
)


_ITSELF = ("current", "identity")


def _roots(node: Any) -> Iterator[str | None]:
    """Yield the names that a node looks up in the payload; `None` for the payload itself."""
    if not isinstance(node, dict) or node["type"] == "expref":
        return
    if node["type"] == "field":
        yield node["value"]
    children = node["children"]
    # @, *.
    if node["type"] in _ITSELF or (
        node["type"] == "value_projection" and children[0]["type"] in _ITSELF
    ):
        yield None
        return
    if node["type"] in _CHAINS:
        while len(children) > 1 and children[0]["type"] in _ITSELF:  # @.name
            children = children[1:]
        children = children[:1]
    for child in children:
        yield from _roots(child)


def _in_parts(node: Node) -> bool:
    """Does a node build its result from parts? Of several alternatives, one is enough."""
    kind = node["type"]
    children = node["children"]
    if kind in ("subexpression", "pipe", "and_expression"):
        passes_on = children[-1]["type"] in _ITSELF  # [a, b] | @
        return _in_parts(children[0 if passes_on else -1])
    if kind == "or_expression" or (kind == "function_expression" and node["value"] == "not_null"):
        return any(map(_in_parts, children))
    return kind in ("multi_select_list", "multi_select_dict")
