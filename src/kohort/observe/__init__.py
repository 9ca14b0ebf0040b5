"""What a group did, seen from outside: timelines and reports made of observed group events.

Stability: experimental.
"""
