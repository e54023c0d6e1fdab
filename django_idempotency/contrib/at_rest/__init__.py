"""Records at rest: responses that are sealed (ENCRYPTION_KEYS), scopes and keys that are hashed
(HASH_KEYS), and the command that erases what is stored about a person (`idempotency_erase`).
"""
