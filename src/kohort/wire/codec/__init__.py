"""The declaration, compilation, encoding and decoding of messages."""
