"""The transaction coordinator as a pure state machine (KIP-98, KIP-360, KIP-890)."""
