"""Ranges of offsets, read by Spark's executors."""
