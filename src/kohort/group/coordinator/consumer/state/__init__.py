"""What a coordinator knows of a group of KIP-848, and the records of its log."""
