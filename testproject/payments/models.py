"""What the project sells, and one row each time it really did something."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from django_idempotency.contrib.business_key.fields import IdempotencyKeyField
from django_idempotency.contrib.business_key.models import OncePerKey


class Charge(models.Model):
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="charges"
    )
    amount = models.PositiveIntegerField(help_text="In the smallest unit: 2499 is 24.99.")
    currency = models.CharField(max_length=3)
    refunded = models.PositiveIntegerField(default=0, help_text="How much of the amount went back.")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"charge {self.pk}: {self.amount} {self.currency}"


class Refund(models.Model):
    charge = models.ForeignKey(Charge, on_delete=models.CASCADE, related_name="refunds")
    amount = models.PositiveIntegerField()
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"refund {self.pk}: {self.amount} of charge {self.charge_id}"


class Effect(models.Model):
    """One row each time the work ran. Two rows with one idempotency key mean one charge too
    many.
    """

    label = models.CharField(max_length=50)
    idempotency_key = models.CharField(max_length=255, blank=True)
    attempt = models.PositiveIntegerField(default=0, help_text="0: the request carried no key.")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.label}, attempt {self.attempt}"


class Invoice(OncePerKey):
    """A row of which each idempotency key makes one, whatever becomes of the key's record."""

    amount = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"invoice {self.pk}: {self.amount}"

    def get_absolute_url(self) -> str:
        return f"/invoices/{self.pk}"


class InvoiceLine(models.Model):
    """A row of which each key makes several, one for each line."""

    idempotency_key = IdempotencyKeyField(unique=False)
    line = models.PositiveIntegerField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("idempotency_key", "line"), name="one_row_per_line"),
        )

    def __str__(self) -> str:
        return f"line {self.line}"
