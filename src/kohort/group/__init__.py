"""The group protocol as pure state machines: coordinator, member, assignors.

Nothing below this package reads a clock, opens a socket, starts a thread or draws a random number.
Time, ids and jitter are arguments, so the same code runs over TCP, in Spark and in a simulator.
"""
