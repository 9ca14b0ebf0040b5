"""What the broker does with each request; one file for each API family."""
