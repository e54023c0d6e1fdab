"""The `@idempotent_form` decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from ... import Policy, idempotent
from .dialect import Form

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

#: What `@idempotent_form` is short for. A second click waits for the result of the first.
FORM_FIELDS: dict[str, Any] = {
    "profile": Form(),
    "key_format": "issued",
    "required": True,
    "wait": 5,
}
#: The policy of a form whose view says no more.
OF_FORMS = Policy(**FORM_FIELDS)


@overload
def idempotent_form(view: Decorated, /) -> Decorated: ...


@overload
def idempotent_form(**fields: Any) -> Callable[[Decorated], Decorated]: ...


def idempotent_form(view: Any = None, /, **fields: Any) -> Any:
    """Process an HTML form once, however often it is sent.

    `{% idempotency_field %}` is in the form.

    Short for `@idempotent(profile=Form(), key_format="issued", required=True, wait=5)`,
    with any other field of `Policy`. See idempotent() for where it goes and what it raises.
    """
    decorate = idempotent(**{**FORM_FIELDS, **fields})
    return decorate if view is None else decorate(view)
