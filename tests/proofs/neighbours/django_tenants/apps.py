from __future__ import annotations

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "tests.proofs.neighbours.django_tenants"
    label = "shop_tenants"
    default_auto_field = "django.db.models.BigAutoField"
