"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class BrowserConfig(AppConfig):
    """The script `django_idempotency/fetch.js`, as a static file. Nothing in Python needs it."""

    name = "django_idempotency.contrib.browser"
    label = "idempotency_browser"
    verbose_name = _("Idempotency: browser")
