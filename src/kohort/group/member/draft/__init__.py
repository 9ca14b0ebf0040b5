"""The consumer's half of the draft protocol, the first design of Kafka 0.9's coordinator."""
