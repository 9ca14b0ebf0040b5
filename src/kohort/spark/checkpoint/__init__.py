"""Reads checkpoints of queries, and converts them from and to those of Spark's own source."""
