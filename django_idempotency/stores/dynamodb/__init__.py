"""Records in DynamoDB."""

from .store import DynamoDBStore

__all__ = ["DynamoDBStore"]
