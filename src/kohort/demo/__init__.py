"""`kohort demo`: real flights, one consumer group, three applications that share it.

Stability: a demonstration; nothing here is for import.
"""
