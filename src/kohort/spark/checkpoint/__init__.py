"""Read checkpoints of queries, and convert them from and to those of Spark's own source."""
