"""The log of the embedded broker: Kafka's own file formats, one directory for each partition.

Plain blocking calls, no event loop. Whatever `append` has returned for was handed to the operating
system and survives the death of this process; `flush` makes it survive the machine's.
"""
