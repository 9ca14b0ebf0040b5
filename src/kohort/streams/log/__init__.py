"""The control topic of a stream application."""
