"""Keys that the server issues and knows again: `key_format="issued"`."""
