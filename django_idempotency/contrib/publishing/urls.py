"""Issues keys to clients that are known: `path("", include("django_idempotency.contrib.publishing.urls"))`. It routes nothing else."""

from django.urls import path

from .tokens import IdempotencyTokenView

urlpatterns = [
    path("idempotency-tokens", IdempotencyTokenView.as_view(), name="idempotency-tokens"),
]
