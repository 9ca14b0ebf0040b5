"""Handlers of requests, one file per API family."""
