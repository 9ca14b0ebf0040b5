"""Bugs that are planted on purpose, to prove that the checkers find them."""
