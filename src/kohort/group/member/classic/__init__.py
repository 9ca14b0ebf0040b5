"""The member's half of the classic protocol, eager: all partitions are released before a join."""
