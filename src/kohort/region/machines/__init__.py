"""The pure half of a region: records, their fold, the log's reader, and the two state machines."""
