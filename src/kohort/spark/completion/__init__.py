"""Whether a batch is over, and what an application and its sources tell each other."""
