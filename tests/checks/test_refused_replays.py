"""Views whose replays the middleware cannot give: the list of routes says so before a client needs
one.
"""

from __future__ import annotations

import pytest

from django_idempotency.checks.guards import rows

from ..entry_points.test_asked_again import UNFOLLOWED


@pytest.mark.urls("tests.entry_points.test_asked_again")
def test_every_replay_that_is_refused() -> None:
    """The routes that the middleware does not replay, as tests/entry_points/test_asked_again.py
    shows.
    """
    refused = {row.path for row in rows() if "replays are refused" in row.why}
    assert {path for path in refused if path.startswith("/unfollowed/")} == {
        f"/unfollowed/{name}/" for name in UNFOLLOWED
    }
    assert {path.split("/")[1] for path in refused} == {"unfollowed"}
