"""The member's half of the classic protocol, eager: everything is given up before joining again."""
