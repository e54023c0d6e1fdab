from django.apps import AppConfig


class PaymentsConfig(AppConfig):
    name = "testproject.payments"
    default_auto_field = "django.db.models.BigAutoField"
