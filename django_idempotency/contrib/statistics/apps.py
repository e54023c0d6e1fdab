"""The app."""

from django.apps import AppConfig


class StatisticsConfig(AppConfig):
    """The page of figures beside the admin's list of records. Optional."""

    name = "django_idempotency.contrib.statistics"
    label = "idempotency_statistics"
