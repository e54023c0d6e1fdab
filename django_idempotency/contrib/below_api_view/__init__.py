"""`@idempotent()` below `@api_view`, inside a view of REST framework."""
