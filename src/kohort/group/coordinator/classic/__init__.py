"""The coordinator's half of the classic group protocol (KIP-62, 134, 345, 389, 394)."""
