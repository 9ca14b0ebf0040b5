"""The admin clients, and their arguments and results."""
