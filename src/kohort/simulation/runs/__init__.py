"""Scenarios, their runs and the outcomes."""
