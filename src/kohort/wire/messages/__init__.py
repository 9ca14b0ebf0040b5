"""Kafka's messages, one file per API family; fields and structures have Kafka's names."""
