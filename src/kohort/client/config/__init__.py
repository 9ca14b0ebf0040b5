"""Client settings: names, types and values; and argument checks."""
