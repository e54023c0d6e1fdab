"""What the shop knows. Documents are kept as they are sent."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models


class Document(models.Model):
    """A checkout or an order."""

    id = models.CharField(max_length=36, primary_key=True)
    body: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.pk)


class Checkout(Document):
    objects: ClassVar[models.Manager[Checkout]] = models.Manager()


class Order(Document):
    objects: ClassVar[models.Manager[Order]] = models.Manager()


class Stock(models.Model):
    product = models.CharField(max_length=40, primary_key=True)
    quantity = models.PositiveIntegerField()

    objects: ClassVar[models.Manager[Stock]] = models.Manager()

    def __str__(self) -> str:
        return f"{self.quantity} {self.product}"


class Address(models.Model):
    """Where a customer has had something sent."""

    key = models.CharField(max_length=40, primary_key=True)
    email = models.CharField(max_length=200)
    fields: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField()

    objects: ClassVar[models.Manager[Address]] = models.Manager()

    def __str__(self) -> str:
        return self.key


class Effect(models.Model):
    """One for each operation that was carried out."""

    operation = models.CharField(max_length=20)

    objects: ClassVar[models.Manager[Effect]] = models.Manager()

    def __str__(self) -> str:
        return self.operation
