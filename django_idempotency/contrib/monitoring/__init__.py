"""Alert rules and a dashboard for the figures of `instrumentation`: `manage.py
idempotency_monitoring` prints them.
"""
