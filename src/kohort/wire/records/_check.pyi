from kohort.wire.codec.schema import Buffer

# Return why the decompressed records part of a producer's batch is invalid, as text for people;
# None if it is valid. It must have `count` records with offsets from 0.
def flaw(records: Buffer, count: int) -> str | None: ...

# Of valid records, find those without a key if they must be `keyed`, and those whose timestamp is
# more than `latest` ms after the batch's base timestamp. Return their number, and the indexes of
# the first `most`.
def refused(
    records: Buffer, count: int, keyed: bool, latest: int, most: int
) -> tuple[int, list[int]]: ...
