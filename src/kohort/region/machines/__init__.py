"""The pure half of a region: records, their fold, the reader of a log, and the two machines."""
