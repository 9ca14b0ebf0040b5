"""A deterministic simulator: the machines of `kohort.group` under faults, in virtual time."""
