"""Erases what is stored about a person: `manage.py idempotency_erase`."""
