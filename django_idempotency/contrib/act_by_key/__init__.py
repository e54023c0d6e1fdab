"""What a client may ask about its own operation when it knows only the key."""
