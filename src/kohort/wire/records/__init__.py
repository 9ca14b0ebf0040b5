"""Record batches: what Kafka's log is made of."""
