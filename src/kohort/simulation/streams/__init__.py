"""Simulates stream applications: real instances on a virtual loop, in a simulated group."""
