"""Bugs that are planted on purpose: whoever claims to find bugs has to show that he does."""
