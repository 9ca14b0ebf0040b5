from collections.abc import Collection, Iterable

import pyarrow as pa

from kohort.wire.codec.limits import Limits
from kohort.wire.codec.schema import Buffer

class ColumnDecoder:
    clipped: list[tuple[str, int, int, int]]
    def __init__(
        self, columns: Collection[str], check_crc: bool, max_bytes: int, limits: Limits
    ) -> None: ...
    def expect(self, fetched: Iterable[tuple[str, int, Buffer, int, int]]) -> None: ...
    def add(
        self, topic: str, partition: int, data: Buffer, from_offset: int, to_offset: int
    ) -> int: ...
    def finish(self, schema: pa.Schema) -> pa.RecordBatch: ...
