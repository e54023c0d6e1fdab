"""The page of settings matches conf.py, in its two tables."""

from __future__ import annotations

from ast import literal_eval
from typing import Any

from django_idempotency import conf
from django_idempotency.core.policy import FIELDS

from .pages import code, table

PAGE = "reference/settings.md"
FOR_THE_PROJECT = table(PAGE, "## For the project")
OF_APPS = table(PAGE, "### Of optional apps")
OF_POLICY = table(PAGE, "| field | default")


def test_every_setting_and_its_default() -> None:
    """Every setting is listed with its default, in the order of the code."""
    assert shown(FOR_THE_PROJECT + OF_POLICY) == list(conf.DEFAULTS.items())


def test_those_of_optional_apps() -> None:
    """Each app that is shipped has declared its own."""
    declared = {
        name: setting.default
        for app in conf.shipped_apps()
        for name, setting in getattr(app, "idempotency_settings", {}).items()
    }
    assert dict(shown(OF_APPS)) == declared
    assert {name: conf.defaults()[name] for name in declared} == declared


def shown(rows: list[list[str]]) -> list[tuple[str, Any]]:
    return [(code(name).upper(), literal_eval(code(default))) for name, default, _ in rows]


def test_the_fields_of_policy_stand_together() -> None:
    """The fields of Policy are in the table that says so, in lower case."""
    assert {code(name) for name, *_ in OF_POLICY} == set(FIELDS)


def test_dotted_paths() -> None:
    """A setting that takes a dotted path says so."""
    assert {code(name).upper() for name, _, takes in OF_POLICY if "dotted path" in takes} == {
        "EXTENSIONS",
        *(name.upper() for name, of in FIELDS.items() if of.by_path),
    }
