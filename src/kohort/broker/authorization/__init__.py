"""Authorization: ACLs, and the responses to denied requests."""
