"""Connections of clients, and who they are."""
