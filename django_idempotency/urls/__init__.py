"""Include it where clients look: `path("", include("django_idempotency.urls"))`."""

from django.urls import path

from ..publishing.tokens import IdempotencyTokenView
from ..publishing.views import IdempotencyPolicyView

urlpatterns = [
    path(".well-known/idempotency-policy", IdempotencyPolicyView.as_view(), name="idempotency-policy"),
    path("idempotency-tokens", IdempotencyTokenView.as_view(), name="idempotency-tokens"),
]
