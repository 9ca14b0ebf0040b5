"""A deterministic simulator: the machines of `kohort.group` under every fault, in virtual time."""
