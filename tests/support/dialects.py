"""Each dialect that is shipped, by its name, and those that the page of keys types."""

from __future__ import annotations

from typing import Any

from django_idempotency.contrib import dialects, forms
from django_idempotency.core.dialects import Default, Dialect, Draft, Stripe

from ..docs.pages import DOCS, blocks

PAGE = DOCS / "how-to" / "keys.md"


def typed() -> dict[str, type[Dialect]]:
    """Return the dialects that a reader types, as they are printed, by their name."""
    found: dict[str, Any] = {}
    for block in blocks(PAGE):
        if "(Dialect):" in block.code:
            exec(block.code, found)
    return {
        each.name: each
        for each in found.values()
        if isinstance(each, type) and issubclass(each, Dialect) and each.__module__ == "builtins"
    }


SHIPPED: list[type[Dialect]] = [
    *(Default, Draft, Stripe, dialects.Adyen, dialects.PayPal, dialects.Square),
    *(dialects.Repeatability, dialects.Aip155, dialects.Zalando, dialects.Iceberg),
    *(dialects.Acp, dialects.Ucp, dialects.Adcp, forms.Form),
]
DIALECTS: dict[str, Dialect] = {each.name: each() for each in (*SHIPPED, *typed().values())}


def changed(kind: type[Dialect], **facts: Any) -> Any:
    """Return a subclass in which these facts differ."""
    return type("Ours", (kind,), facts)
