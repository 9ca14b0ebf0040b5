from kohort.wire.schema import Buffer

# What is wrong with the records part, decompressed, of a batch that a producer sent, as a sentence
# for people; None where nothing is. There have to be `count` records whose offsets count from 0,
# and if they are `keyed` each must have a key.
def flaw(records: Buffer, count: int, keyed: bool) -> str | None: ...
