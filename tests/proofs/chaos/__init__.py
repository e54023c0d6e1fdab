"""PostgreSQL restarts every few seconds while clients retry: each operation has one effect, and all
finish.
"""
