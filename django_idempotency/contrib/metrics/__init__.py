"""Meters for Prometheus and OpenTelemetry: `IDEMPOTENCY = {"METRICS": …}`."""
