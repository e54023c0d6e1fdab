"""Keys and fingerprints that are selected from a request, and keys in its body. A policy, or its profile, asks for it."""
