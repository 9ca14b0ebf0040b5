"""One running instance: the tasks that it owns, and what it does with them."""
