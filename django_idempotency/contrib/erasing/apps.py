"""The app."""

from django.apps import AppConfig


class ErasingConfig(AppConfig):
    """The command that erases what is stored about a person. Optional."""

    name = "django_idempotency.contrib.erasing"
    label = "idempotency_erasing"
