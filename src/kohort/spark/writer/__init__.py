"""Writing from Spark: to Kafka, and exactly once into Delta tables."""
