from kohort.wire.codec.schema import Buffer

# The fault of the decompressed records part of a producer's batch, as a sentence for
# people; None if it is sound. There have to be `count` records whose offsets count from 0.
def flaw(records: Buffer, count: int) -> str | None: ...

# Of sound records, those without a key if they must be `keyed`, and those whose
# timestamp is more than `latest` ms after the batch's base timestamp: how many there are, and the
# indexes of the first `most`.
def refused(
    records: Buffer, count: int, keyed: bool, latest: int, most: int
) -> tuple[int, list[int]]: ...
