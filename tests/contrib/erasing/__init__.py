"""Tests of erasing what is stored about a person."""
