"""The positions that groups store."""
