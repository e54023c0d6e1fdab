"""The cost of idempotency, as ratios to the same work without it. Run it with `make bench`."""
