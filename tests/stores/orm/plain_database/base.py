"""Django looks for the connection's class here."""

from __future__ import annotations

from django.db.backends.postgresql import base, features


class DatabaseFeatures(features.DatabaseFeatures):
    has_select_for_update_skip_locked = False


class DatabaseWrapper(base.DatabaseWrapper):
    vendor = "plain"
    display_name = "Plain"
    features_class = DatabaseFeatures
