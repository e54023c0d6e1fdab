"""The stores' DynamoDB server."""

from __future__ import annotations

from ...stores.conftest import dynamodb

__all__ = ["dynamodb"]
