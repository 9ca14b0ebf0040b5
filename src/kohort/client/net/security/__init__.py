"""How a connection is encrypted, and how it proves who it is."""
