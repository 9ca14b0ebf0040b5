"""Scenarios, one run or many of them, and what came of each."""
