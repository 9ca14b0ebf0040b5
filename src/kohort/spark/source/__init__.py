"""The data source: what it reads, in which batches, as a member of which group."""
