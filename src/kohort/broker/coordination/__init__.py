"""The coordinators of groups and of transactions."""
