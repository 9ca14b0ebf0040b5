"""Conversion of live groups between classic and consumer (KIP-848, K40 to K48).

Only this package depends on both kinds of group.
"""
