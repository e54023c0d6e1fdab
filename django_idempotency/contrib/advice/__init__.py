"""What `manage.py check` advises of what works, and may still surprise: replays, exceptions,
secrets, and with --deploy the servers.
"""
