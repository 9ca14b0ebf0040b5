"""What clients may do: ACLs, and the answers to those who may not."""
