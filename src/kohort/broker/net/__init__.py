"""Client connections, their security and their authentication."""
