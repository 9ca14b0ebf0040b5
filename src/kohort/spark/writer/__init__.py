"""Writers for Spark: to Kafka, and exactly once into Delta tables."""
