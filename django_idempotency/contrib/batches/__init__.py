"""Batches: many records, each under its own key, and a report of their outcomes."""

from .report import BatchItem, BatchReport
from .running import aprocess_batch, process_batch

__all__ = ["BatchItem", "BatchReport", "aprocess_batch", "process_batch"]
