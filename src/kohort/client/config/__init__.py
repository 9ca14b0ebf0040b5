"""Settings of clients: their names, types and values, and checks of arguments."""
