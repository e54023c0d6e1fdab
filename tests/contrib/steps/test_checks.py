"""W132: the database into which steps are written must have their table."""

from __future__ import annotations

from typing import Any

from pytest_django import Settings

from django_idempotency.contrib.steps.checks import check_steps


class NotInDefault:
    """A router that keeps the steps out of the database of the records."""

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
        return db != "default" if app_label == "idempotency_steps" else None


def test_the_table_of_steps(settings: Settings) -> None:
    assert check_steps() == []
    settings.DATABASE_ROUTERS = [NotInDefault()]
    [found] = check_steps()
    assert str(found.id).rpartition(".")[2] == "W132"
    assert '"default"' in found.msg
    assert "idempotency_steps" in str(found.hint)
