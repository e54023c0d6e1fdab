"""The page of functions names what the decorator takes, and what it leaves out."""

from __future__ import annotations

import inspect

from django_idempotency import idempotent_function
from django_idempotency.functions import CurrentOperation, Handle
from django_idempotency.functions.decorator import Guarded
from django_idempotency.runtime.wings import extended

from .pages import code, table

PAGE = "reference/idempotent-function.md"


def members(cls: type) -> set[str]:
    """Return the public names of a class."""
    named = {name for part in cls.__mro__ for name in (*vars(part), *inspect.get_annotations(part))}
    return {name for name in named if not name.startswith("_")}


def test_every_field() -> None:
    """The fields are in the order of the code, with the defaults that do not follow the settings."""
    parameters = list(inspect.signature(idempotent_function).parameters.values())[1:]
    rows = table(PAGE, "## Fields")
    assert [code(row[0]) for row in rows] == [parameter.name for parameter in parameters]
    for (_, default, _), parameter in zip(rows, parameters, strict=True):
        if not default.startswith("settings"):
            assert code(default).strip('"') == str(parameter.default)


def test_every_member() -> None:
    """The page has every member of the function, of its handle, and of a run."""
    for heading, cls in (
        ("## On the function", Guarded),
        ("## The handle", Handle),
        ("## current_operation()", extended(CurrentOperation)),
    ):
        shown = {code(row[0]).partition("(")[0] for row in table(PAGE, heading)}
        assert shown == members(cls) - {"holds"}  # for our own use
