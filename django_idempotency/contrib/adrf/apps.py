"""The app."""

from __future__ import annotations

from .. import optional_app


class AdrfConfig(optional_app.OptionalApp):
    """Async views of REST framework. It adds no table."""

    name = "django_idempotency.contrib.adrf"
    label = "idempotency_adrf"
    verbose_name = "Idempotency: adrf"
    extends = "kind.Adrf"
