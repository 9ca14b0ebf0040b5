"""What goes wrong in a simulated group."""
