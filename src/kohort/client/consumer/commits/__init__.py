"""Commits of a consumer, automatic and explicit, and queries for offsets of partitions."""
