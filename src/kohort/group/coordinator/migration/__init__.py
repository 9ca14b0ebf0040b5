"""From classic groups to consumer groups and back, while they run (KIP-848, K40 to K48).

Only this package knows both kinds of group.
"""
