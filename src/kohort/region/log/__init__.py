"""The control topic of a region."""
