"""The page where a visitor of the demo begins."""

from __future__ import annotations

import pytest
from django.test import Client


def test_the_page_leads_somewhere(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    """It has a request to send, with the demo's token, and links that answer."""
    monkeypatch.setenv("DEMO_TOKEN", "a-token")
    page = Client().get("/")
    text = page.content.decode()
    assert "curl -i http://testserver/api/charges/" in text
    assert "Authorization: Token a-token" in text
    assert '"card": "tok_slow"' in text
    assert Client().get("/metrics/").status_code == 200
    sheet = Client().get("/static/django_idempotency/policies.css")
    assert sheet.status_code == 200
    sheet.close()
