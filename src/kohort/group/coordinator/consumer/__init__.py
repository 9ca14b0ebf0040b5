"""The coordinator's half of the consumer protocol (KIP-848)."""
