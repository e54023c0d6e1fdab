"""How a running system can be observed: signals and log records."""
