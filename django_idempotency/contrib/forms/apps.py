"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class FormsConfig(AppConfig):
    """The template tag, and the scripts `form.js` and `fetch.js`. The field works without it."""

    name = "django_idempotency.contrib.forms"
    label = "idempotency_forms"
    verbose_name = _("Idempotency: forms")
