"""How messages are declared, compiled, and written and read as bytes."""
