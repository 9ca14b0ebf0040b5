"""Connections to the brokers of a cluster, cluster metadata, and routing of requests to brokers."""
