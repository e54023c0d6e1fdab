"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class PublishingConfig(AppConfig):
    """The page of policies, and the command that prints it. Optional."""

    name = "django_idempotency.contrib.publishing"
    label = "idempotency_publishing"
    verbose_name = _("Idempotency: published policies")
