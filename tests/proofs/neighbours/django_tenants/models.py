"""The tenants, and their hosts."""

from __future__ import annotations

from django_tenants.models import DomainMixin, TenantMixin


class Tenant(TenantMixin):
    class Meta:
        app_label = "shop_tenants"


class Domain(DomainMixin):
    class Meta:
        app_label = "shop_tenants"
