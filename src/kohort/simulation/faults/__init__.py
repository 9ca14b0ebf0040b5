"""The faults of a simulated group."""
