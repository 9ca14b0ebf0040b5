"""The `kohort` command.

Stability: experimental.
"""
