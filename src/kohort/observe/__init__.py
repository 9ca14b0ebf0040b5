"""Timelines and reports of a group, from observed group events.

Stability: experimental.
"""
