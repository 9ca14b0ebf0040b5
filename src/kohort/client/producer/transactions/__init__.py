"""Transactional producers (KIP-98)."""
