"""The trail in the admin: the timeline of a key, references as links, and lists that nobody
changes.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from django_idempotency import current_operation, idempotent_function
from django_idempotency.contrib.audit.models import AuditEvent, Reference
from django_idempotency.models import IdempotencyRecord
from tests.admin.conftest import boss  # noqa: F401 - a fixture
from tests.support.factories import grant

from .helpers import events, post

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

LIST = "admin:django_idempotency_idempotencyrecord_changelist"


@idempotent_function(key_prefix="admin", data_keyword_argument="order")
def pay(*, order: int, charge: Any) -> int:
    operation = current_operation()
    assert operation is not None
    operation.refer("auth.user", charge)
    operation.refer("payments.charge", charge)
    operation.refer("invoice", f"<b>{order}</b>")
    return order


def page_of(record: IdempotencyRecord) -> str:
    return reverse("admin:django_idempotency_idempotencyrecord_change", args=[record.pk])


def viewer() -> Client:
    """Return somebody who may see the records, and nothing of the trail."""
    user = User.objects.create_user("viewer", is_staff=True)
    grant(user, IdempotencyRecord, "view_idempotencyrecord")
    client = Client()
    client.force_login(user)
    return client


def test_the_timeline(boss: Client, api: APIClient, user: Any) -> None:  # noqa: F811 - the fixture
    """Events in order, newest last, in a table with headers."""
    post(api)
    post(api)
    text = boss.get(page_of(IdempotencyRecord.objects.get())).content.decode()
    section = text[text.index("idempotency-timeline-heading") :]
    places = [section.index(f">{name}<") for name in ("claimed", "completed", "replayed")]
    assert places == sorted(places)
    assert section.count('<th scope="col">') == 6
    assert f"auth.user:{user.pk}" in section
    assert "req-k-1" in section


def test_references(boss: Client, user: User) -> None:  # noqa: F811
    """A model with an admin that the viewer may open is a link; anything else is text, and
    escaped.
    """
    pay(order=17, charge=user.pk)
    text = boss.get(page_of(IdempotencyRecord.objects.get())).content.decode()
    assert f'<a href="/admin/auth/user/{user.pk}/change/">{user.pk}</a>' in text
    assert "<dt>payments.charge</dt>" in text
    assert "&lt;b&gt;17&lt;/b&gt;" in text
    assert "<b>17" not in text


def test_search(boss: Client, user: User) -> None:  # noqa: F811
    """The records are searched by a reference, and the references by kind and value or value
    alone.
    """
    pay(order=17, charge=user.pk)
    pay(order=18, charge=user.pk)
    found = boss.get(reverse(LIST), {"q": "invoice:<b>17</b>"}).context["cl"].result_list
    assert [row.key for row in found] == [pay.idempotency.key_for(order=17, charge=user.pk)]
    references = reverse("admin:idempotency_audit_reference_changelist")
    for term, count in (
        ("", 6),
        ("invoice:<b>17</b>", 1),
        ("<b>17</b>", 1),
        (str(user.pk), 4),
        ("invoice:1", 0),
    ):
        assert len(boss.get(references, {"q": term}).context["cl"].result_list) == count, term
    listed = reverse("admin:idempotency_audit_auditevent_changelist")
    scope, key = pay.idempotency.scope, pay.idempotency.key_for(order=17, charge=user.pk)
    for term, count in (("", 4), (f"{scope} {key}", 2), (str(found[0].pk), 2), ("nothing", 0)):
        assert len(boss.get(listed, {"q": term}).context["cl"].result_list) == count, term


def test_nobody_changes_it(boss: Client, user: User) -> None:  # noqa: F811
    """Even a superuser only reads: no page adds, changes or deletes."""
    pay(order=17, charge=user.pk)
    for model in (AuditEvent, Reference):
        name, row = f"admin:idempotency_audit_{model._meta.model_name}", model.objects.all()[0]
        page = reverse(f"{name}_change", args=[row.pk])
        assert boss.get(page).status_code == 200
        assert boss.post(page, {"key": "other"}).status_code == 403
        assert boss.get(reverse(f"{name}_add")).status_code == 403
        assert (
            boss.post(reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
        )
        assert boss.get(reverse(f"{name}_changelist"), {"key__startswith": "a"}).status_code in {
            302,
            400,
        }


def test_who_may_see_it(user: User) -> None:
    """The permission to see records is not the one to see the trail."""
    pay(order=17, charge=user.pk)
    client = viewer()
    text = client.get(page_of(IdempotencyRecord.objects.get())).content.decode()
    assert "idempotency-timeline" not in text
    assert client.get(reverse("admin:idempotency_audit_auditevent_changelist")).status_code == 403
    found = client.get(reverse(LIST), {"q": "invoice:<b>17</b>"}).context["cl"].result_list
    assert list(found) == []


def test_an_intervention(boss: Client, user: User) -> None:  # noqa: F811
    """Who released a key, and why, is on its timeline."""
    pay(order=17, charge=user.pk)
    page = page_of(IdempotencyRecord.objects.get())
    boss.post(page.replace("change/", "release/"), {"confirmed": "yes", "reason": "ticket 4711"})
    assert events() == ["claimed", "completed", "released_by_hand"]
    text = boss.get(page).content.decode()
    assert "<q>ticket 4711</q>" in text
    assert f"auth.user:{boss.session['_auth_user_id']}" in text


def test_a_long_trail(boss: Client, user: User, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """A list counts only so far, however long the trail is."""
    monkeypatch.setattr("django_idempotency.contrib.audit.admin.COUNTED", 3)
    for order in range(4):
        pay(order=order, charge=user.pk)
    assert (
        boss.get(reverse("admin:idempotency_audit_auditevent_changelist"))
        .context["cl"]
        .result_count
        == 3
    )
