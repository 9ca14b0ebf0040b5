"""The application API: programs, their steps, and running them."""
