"""The consumers: fetching, positions, and delivery of records."""
