"""Threads and event loops: the loop thread of blocking clients, and shutdown of clients."""
