"""Between threads and event loops: the loop of blocking clients, and how clients end."""
