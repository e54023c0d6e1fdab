"""What the requests of a client have done."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Payment(models.Model):
    """An effect: one per payment, order or message."""

    api = models.CharField(max_length=20)

    objects: ClassVar[models.Manager[Payment]] = models.Manager()

    def __str__(self) -> str:
        return f"{self.api} {self.pk}"
