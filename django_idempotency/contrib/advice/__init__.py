"""What `manage.py check` advises of what works, and may still surprise: replays, tenants, and with --deploy the servers."""
