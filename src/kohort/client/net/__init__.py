"""Connections to the brokers of a cluster, what they say of it, and requests to the right one."""
