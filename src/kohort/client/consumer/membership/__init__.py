"""The group membership of a consumer, for each group protocol."""
