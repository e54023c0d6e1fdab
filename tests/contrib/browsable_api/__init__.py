"""Tests of the browsable API with keys."""
