"""Simulates stream applications: instances of the product on a virtual loop, in a real group."""
