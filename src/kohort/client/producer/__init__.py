"""The producers: collect records in batches, send them to brokers, and report the results."""
