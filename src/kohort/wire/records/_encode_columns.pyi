from enum import IntEnum

import pyarrow as pa

from kohort.wire.codec.schema import Buffer
from kohort.wire.records._columns import Columns
from kohort.wire.records.header import Compression

class Hasher(IntEnum):
    MURMUR2 = 0
    CRC32 = 1
    NONE = 2

class Groups:
    def __init__(
        self,
        columns: Columns,
        first_row: int,
        rows: int,
        partitions: int,
        start: int,
        sticky_bytes: int,
        hasher: Hasher = ...,
    ) -> None: ...
    @property
    def partitions(self) -> int: ...
    def pending(self) -> list[int]: ...
    def left(self, partition: int) -> int: ...
    def need(self, partition: int, limit: int) -> int: ...
    def encode(self, partition: int, limit: int) -> EncodedRows: ...
    def rows_left(self) -> pa.Int64Array: ...

class EncodedRows:
    @property
    def codec(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    def records(self) -> memoryview: ...
    def compressed(self, codec: int, data: Buffer) -> EncodedRows: ...
    @property
    def rows(self) -> pa.Int64Array: ...
    def build(
        self,
        codec: Compression = ...,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> memoryview: ...
