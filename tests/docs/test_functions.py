"""The page of functions names what the decorator takes, and what it leaves out."""

from __future__ import annotations

import inspect
import re

from django_idempotency import idempotent_function
from django_idempotency.functions import CurrentOperation, Handle
from django_idempotency.functions.decorator import OF_POLICY, Guarded
from django_idempotency.runtime.app_extensions import extended

from .pages import code, table, text

PAGE = "how-to/functions.md"


def members(cls: type) -> set[str]:
    """Return the public names of a class."""
    named = {name for part in cls.__mro__ for name in (*vars(part), *inspect.get_annotations(part))}
    return {name for name in named if not name.startswith("_")}


def test_every_field() -> None:
    """Fields of its own are in the order of the code, with their defaults; those of a policy are
    named before.
    """
    own = {
        parameter.name: str(parameter.default)
        for parameter in inspect.signature(idempotent_function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name != "expires_after"
    }
    shown = {
        code(field): code(default).strip('"') for field, default, _ in table(PAGE, "## Fields")
    }
    assert list(shown.items()) == list(own.items())
    said = text(PAGE).partition("## Fields")[2].partition("| field |")[0]
    assert set(re.findall(r"`(\w+)`", said)) - {"Policy", "ttl", "expires_after"} == OF_POLICY


def test_every_member() -> None:
    """The page has every member of the function and of its handle; those of a run are those of a
    request.
    """
    for heading, cls in (("## On the function", Guarded), ("## The handle", Handle)):
        shown = {code(row[0]).partition("(")[0] for row in table(PAGE, heading)}
        assert shown == members(cls)
    of_a_request = {
        code(row[0]).partition("(")[0]
        for row in table("reference/settings.md", "## request.idempotency")
    }
    # For our own use.
    assert of_a_request - {"keep", "drop"} == members(extended(CurrentOperation)) - {"holds"}
