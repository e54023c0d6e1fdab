"""Idempotency for Django: safe retries of requests, functions and messages."""
