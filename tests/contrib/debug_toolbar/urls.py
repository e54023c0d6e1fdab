"""The views of the entry points, and the toolbar's own."""

from __future__ import annotations

from django.urls import include, path

from tests.entry_points import outcome_views

urlpatterns = [*outcome_views.urlpatterns, path("__debug__/", include("debug_toolbar.urls"))]
