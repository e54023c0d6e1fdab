"""Tests of what is selected from a request."""
