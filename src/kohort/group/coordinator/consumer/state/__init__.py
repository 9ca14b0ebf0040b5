"""The coordinator's state of a KIP-848 group, and the records of its log."""
