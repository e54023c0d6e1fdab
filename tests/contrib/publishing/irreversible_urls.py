"""The page is routed, beside a pattern that Django cannot reverse."""

from __future__ import annotations

from django.urls import include, path, re_path

from django_idempotency.contrib.publishing.views import IdempotencyPolicyView

urlpatterns = [
    path("", include("django_idempotency.contrib.limits.issued_keys")),
    path(
        ".well-known/idempotency-policy", IdempotencyPolicyView.as_view(), name="idempotency-policy"
    ),
    re_path(r"(?s)^anything/.*$", IdempotencyPolicyView.as_view()),
]
