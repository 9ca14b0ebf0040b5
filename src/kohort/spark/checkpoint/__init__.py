"""Checkpoints of queries: read, and converted from and to those of Spark's own source."""
