from django.contrib import admin

from .models import Charge, Effect, Refund


@admin.register(Charge)
class ChargeAdmin(admin.ModelAdmin):
    list_display = ("id", "user", "amount", "currency", "refunded", "created")
    list_select_related = ("user",)


@admin.register(Refund)
class RefundAdmin(admin.ModelAdmin):
    list_display = ("id", "charge", "amount", "created")
    list_select_related = ("charge",)


@admin.register(Effect)
class EffectAdmin(admin.ModelAdmin):
    list_display = ("id", "label", "idempotency_key", "attempt", "created")
    list_filter = ("label",)
    search_fields = ("idempotency_key",)
