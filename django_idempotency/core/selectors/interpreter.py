"""JMESPath's interpreter over Python objects: nothing is copied, and values keep their types.

Names are looked up in mappings, and as public attributes of other objects; never a method, and never a name that begins
with "_". A tuple counts as a list.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from jmespath.visitor import Options, TreeInterpreter

from ..canonical.encoder import field_names
from .functions import Functions

Node = Any

#: Values, not objects with fields: `amount.real` selects nothing.
_OPAQUE = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, memoryview, type),
    *(list, set, frozenset, Decimal, UUID, date, time, timedelta),
)


class Interpreter(TreeInterpreter):
    """Walks one expression. It holds no state, so threads may share it."""

    def __init__(self, functions: Functions, dict_cls: type[Any] | None = None) -> None:
        super().__init__(Options(dict_cls=dict_cls, custom_functions=functions))

    def visit_field(self, node: Node, value: Any) -> Any:
        name = node["value"]
        # An ABC check takes as long as everything else here (measured), so a mapping must have get().
        if type(value) is dict or (hasattr(value, "get") and isinstance(value, Mapping)):
            return value.get(name)
        if name.startswith("_") or isinstance(value, _OPAQUE):
            return None
        found = getattr(value, name, None)
        if isinstance(found, type):
            return None
        return found if isinstance(found, _OPAQUE) or not inspect.isroutine(found) else None

    def visit_comparator(self, node: Node, value: Any) -> Any:
        # A literal is a float, and 0.1 is less than Decimal("0.1"): their digits are equal.
        left, right = (self.visit(child, value) for child in node["children"])
        if isinstance(left, Decimal) and isinstance(right, float):
            right = Decimal(repr(right))
        elif isinstance(right, Decimal) and isinstance(left, float):
            left = Decimal(repr(left))
        children: Any = [{"type": "literal", "value": side, "children": []} for side in (left, right)]
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
        kept = [element for element in base if not self._is_false(self.visit(node["children"][2], element))]
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
        return value is None or value is False or (isinstance(value, (str, list, tuple, Mapping)) and len(value) == 0)
