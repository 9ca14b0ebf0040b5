"""The member of a consumer's group, for each of the group protocols."""
