"""An embedded Kafka-compatible broker: one node, for tests, demos and development.

Stability: beta for what it serves; it is no replacement for a cluster.
"""
