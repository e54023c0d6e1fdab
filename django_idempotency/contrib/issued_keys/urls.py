"""Issues keys to clients that are known: `path("",
include("django_idempotency.contrib.issued_keys.urls"))`. It routes nothing else.
"""

from django.urls import path

from .views import IdempotencyTokenView

urlpatterns = [
    path("idempotency-tokens", IdempotencyTokenView.as_view(), name="idempotency-tokens")
]
