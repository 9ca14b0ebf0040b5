"""Encryption and authentication of connections."""
