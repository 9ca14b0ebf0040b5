"""The member's half of the consumer protocol (KIP-848): heartbeats and reconciliation."""
