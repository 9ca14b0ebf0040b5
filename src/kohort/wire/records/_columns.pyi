from enum import IntEnum

from kohort.wire.records.columns import Headers, Source

class Kind(IntEnum):
    SHORT = 1
    LONG = 2
    VIEW = 3
    FIXED = 4

class Outcome(IntEnum):
    GOOD = 0
    BAD_KEY = 1
    BAD_VALUE = 2
    BAD_HEADERS = 3
    NULL_HEADER = 4
    BAD_HEADER_NAME = 5
    BAD_TIMESTAMP = 6
    BAD_PARTITION = 7
    TOO_LARGE = 8

class Columns:
    def __init__(
        self,
        rows: int,
        key: Source | None,
        value: Source | None,
        headers: Headers | None,
        partitions: Source | None,
        timestamps: Source | None,
        multiplier: int,
        divisor: int,
        now: int,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    def check(self, max_bytes: int, partitions: int) -> tuple[int, int, int] | None: ...
