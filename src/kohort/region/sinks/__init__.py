"""Sinks: destinations for the output of a region."""
