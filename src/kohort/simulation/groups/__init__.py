"""The simulated cluster and its groups: brokers, members, applications and the ledger."""
