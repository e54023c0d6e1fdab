"""Without its store an operation runs unguarded if its policy says so, and no step of it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from django_idempotency.contrib.steps.models import Step
from django_idempotency.errors import OperationUnknown, StoreUnavailable
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore

from . import views, work
from .test_resuming import guarded, operation
from .test_undoing import saga
from .test_views import Send, send  # noqa: F401 - a fixture
from .views import BODY, DOORS, END
from .work import PROVIDER

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.contrib.steps.views"),
]


class Away(MemoryStore):
    """A store that does not respond."""

    supports_atomic = True
    using = "default"

    def claim(self, ticket: Any) -> Any:
        raise StoreUnavailable


@pytest.fixture(autouse=True)
def _open(settings: Any) -> Iterator[None]:
    BODY.clear()
    END.clear()
    settings.IDEMPOTENCY = {
        "GUARANTEE": "lease",
        "EXTENSIONS": [views.UNDO_ON],
        "ON_STORE_FAILURE": "open",
    }
    with stores.replaced("default", Away()):
        yield


def nothing_is_done() -> bool:
    return (work.labels(), PROVIDER.calls, Step.objects.count()) == ([], [], 0)


@pytest.mark.parametrize("door", DOORS)
def test_a_request(send: Send, door: str) -> None:  # noqa: F811 - the fixture
    """Its first step is refused before its body, since nobody knows what earlier attempts have
    done.
    """
    response = send(door)
    assert (response.status_code, response.json()["code"]) == (503, "store-unavailable")
    assert nothing_is_done()


@pytest.mark.parametrize(
    ("body", "guarantee"),
    [
        (saga, "lease"),
        (lambda card: operation().undo_steps(), "lease"),
        (lambda card: operation().step("order", work.make_order, card), "atomic"),
    ],
    ids=["step", "undo", "atomic"],
)
def test_a_function(body: Any, guarantee: str) -> None:
    with pytest.raises(OperationUnknown):
        guarded(body, guarantee=guarantee)("visa")
    assert nothing_is_done()


def test_what_has_no_step(client: Client) -> None:
    """It runs, as its policy says."""
    assert guarded(lambda card: card)("visa") == "visa"
