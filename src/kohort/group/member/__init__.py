"""The member's half of the group protocols."""
