"""The data source: the records it reads, its batches, and its membership in a group."""
