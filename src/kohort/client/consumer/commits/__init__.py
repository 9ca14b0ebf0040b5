"""Commits of a consumer: its own, those of the application, and offsets of partitions."""
