"""The producers: records into batches, batches to brokers, and what became of them."""
