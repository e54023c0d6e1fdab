"""What django_idempotency.testing offers by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from django_idempotency import testing


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_is_there(name: str) -> None:
    """Each name is the one that the object was defined with."""
    assert getattr(testing, name).__name__ == name
    assert set(testing._MODULES) == set(testing.__all__)


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'assert_idempotnet'"):
        testing.assert_idempotnet  # noqa: B018


def test_a_name_loads_its_own_module_only() -> None:
    """Overriding needs neither hypothesis nor pytest."""
    script = (
        "import sys; from django_idempotency.testing import override_idempotency, RecordingStore; "
        "print(*sorted({'pytest', 'hypothesis', 'django_idempotency.models'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ""
