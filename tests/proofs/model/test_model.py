"""The core's decisions keep their promises in every history of a small world, and the search would
find it if they did not.
"""

from __future__ import annotations

import pytest

from django_idempotency.core.records import Guarantee

from .search import reaches, search
from .settings import EXAMINED, MUTATIONS
from .world import Setting

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("setting", EXAMINED.values(), ids=EXAMINED)
def test_no_history_breaks_a_promise(setting: Setting) -> None:
    """A remembered response has its writes, the effect here is had once, and that elsewhere if the
    work does its part.
    """
    found = search(setting)
    assert (found.broken, found.history) == ("", ())
    assert found.states > 1000


@pytest.mark.parametrize("setting", MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutation_is_noticed(setting: Setting) -> None:
    """A core with this mistake breaks a promise, and the search tells the shortest history of
    that.
    """
    found = search(setting)
    assert found.broken
    assert found.history


def test_what_the_loss_of_a_claim_does() -> None:
    """With `durable_claims` off, a crash after the provider has acted makes the retry a first
    attempt, which acts again.
    """
    found = search(MUTATIONS["a claim is not on disk before the work"])
    assert "at the provider was had twice" in found.broken
    assert sum("crashes" in said for said in found.history) == 1
    assert sum("acts at the provider" in said for said in found.history) == 2


@pytest.mark.parametrize("guarantee", Guarantee)
def test_the_search_meets_what_it_is_about(guarantee: Guarantee) -> None:
    """Work that neither asks nor passes its derived key acts twice in some history: the promise is
    not kept by chance.
    """
    assert reaches(Setting(guarantee=guarantee, there="plain"), 2)
