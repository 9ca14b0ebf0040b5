"""The options of the source and of the writer."""
