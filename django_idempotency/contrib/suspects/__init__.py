"""Rows of the project that may be one operation, done twice under different keys."""
