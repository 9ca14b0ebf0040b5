"""Queries that are operators of a consistent region."""
