from kohort.wire.codec.schema import Buffer

# What is wrong with the records part, decompressed, of a batch that a producer sent, as a sentence
# for people; None where nothing is. There have to be `count` records whose offsets count from 0.
def flaw(records: Buffer, count: int) -> str | None: ...

# Of records without a flaw, those without a key if they have to be `keyed`, and those whose
# timestamp is more than `latest` ms after the batch's base timestamp: how many there are, and the
# indexes of the first `most`.
def refused(
    records: Buffer, count: int, keyed: bool, latest: int, most: int
) -> tuple[int, list[int]]: ...
