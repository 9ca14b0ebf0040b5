"""Kafka's messages, one file per API family; fields and structures bear Kafka's own names."""
