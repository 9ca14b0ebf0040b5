"""`kohort demo`: real flights, one consumer group, three applications that share it.

Stability: a demonstration; do not import anything from here.
"""
