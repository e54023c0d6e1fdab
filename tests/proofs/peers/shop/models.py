"""What the requests have done."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Charge(models.Model):
    """An effect: one for each run of the view."""

    amount = models.IntegerField(null=True)

    objects: ClassVar[models.Manager[Charge]] = models.Manager()

    def __str__(self) -> str:
        return f"{self.amount}"
