"""The log of the embedded broker, in Kafka's file formats, with a directory per partition.

Plain blocking calls, no event loop. When `append` returns, the records are with the operating
system and survive the death of this process; after `flush` they survive that of the machine.
"""
