"""What idempotency costs, as ratios over the same work without it. Run it with `make bench`."""
