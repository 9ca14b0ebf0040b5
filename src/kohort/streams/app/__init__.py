"""What an application says: its program, its steps, and how it is run."""
