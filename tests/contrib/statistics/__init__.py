"""Tests of the page of figures."""
