"""Arrow tables as records: `send_arrow`."""
