"""What a buyer buys."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class MediaBuy(models.Model):
    """An effect: one per call that was carried out."""

    packages = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[models.Manager[MediaBuy]] = models.Manager()

    def __str__(self) -> str:
        return f"mb_{self.pk}"
