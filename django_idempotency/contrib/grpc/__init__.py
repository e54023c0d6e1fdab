"""gRPC: interceptors for whose unary methods each key is carried out once, by the machinery of
guarded functions.
"""

from .interceptors import AsyncIdempotencyInterceptor, IdempotencyInterceptor

__all__ = ["AsyncIdempotencyInterceptor", "IdempotencyInterceptor"]
