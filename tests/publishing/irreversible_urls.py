"""The page is routed, beside a pattern that Django cannot reverse."""

from __future__ import annotations

from django.urls import include, path, re_path

from django_idempotency.publishing.views import IdempotencyPolicyView

urlpatterns = [
    path("", include("django_idempotency.urls")),
    re_path(r"(?s)^anything/.*$", IdempotencyPolicyView.as_view()),
]
