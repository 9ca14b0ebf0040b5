"""The consumers: what they fetch, where they are in it, and what they hand out."""
