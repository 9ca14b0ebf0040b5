"""The coordinator of groups: one `Shard` for each partition of `__consumer_offsets`."""
