"""Bytes to messages and back: frames, messages, record batches."""
