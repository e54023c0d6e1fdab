"""What others can see of a running system: signals and log records."""
