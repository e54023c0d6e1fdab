"""The tutorial of the booking is carried out: its files, its commands, its servers and each `kill
-9`.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from .pages import blocks
from .shop import BOOKING, opened


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="The page types curl.")
def test_the_page(tmp_path: Path) -> None:
    """Every command prints what the page shows; what is left agrees with what really happened."""
    with opened(tmp_path) as shop:
        shop.play(until="kill $(cat server.pid provider.pid)")
        database = sqlite3.connect(tmp_path / "db.sqlite3")
        assert [
            seat for (seat,) in database.execute("SELECT seat FROM bookings_booking ORDER BY seat")
        ] == [
            "A1",
            "A2",
            "A4",
        ]
        database.close()


def test_each_file_is_named() -> None:
    """Each block of code begins with the name of its file."""
    code = [block.code for block in blocks(BOOKING) if block.language == "python"]
    assert len(code) == 7
    assert all(".py" in each.partition("\n")[0] for each in code)
