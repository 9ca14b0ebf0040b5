"""The admin clients, and what they take and give."""
