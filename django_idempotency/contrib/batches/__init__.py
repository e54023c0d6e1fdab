"""Batches: many records, each under its own key, and a report of their outcomes. `messages` says
what becomes of one message.
"""

from .report import BatchItem, BatchReport
from .running import aprocess_batch, process_batch

__all__ = ["BatchItem", "BatchReport", "aprocess_batch", "process_batch"]
