from collections import deque
from collections.abc import Callable
from typing import TypeVar

from kohort.client.config.definitions import Partitioner
from kohort.client.producer._deliveries import Delivery
from kohort.client.producer.batch import Batch
from kohort.errors import KohortError
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Buffer

_D = TypeVar("_D", bound=Delivery)

def murmur2(data: Buffer) -> int: ...

class StickyPartitioner:
    def __init__(self, sticky_bytes: int, seed: int | None = None) -> None: ...
    def choose(self, partitions: int, size: int) -> int: ...

class OpenBatches:
    sealed: deque[Batch]
    added_bytes: int
    released_bytes: int
    is_behind: bool
    is_notified: bool
    fatal: KohortError | None
    refusal: KohortError | None
    gate: KohortError | None
    def __init__(
        self,
        make_batch: Callable[[TopicPartition, int], Batch],
        clock: Callable[[], int],
        notify: Callable[[], object],
        *,
        batch_size: int,
        largest_batch: int,
        linger_ms: int,
        buffer_memory: int,
        largest_record: int,
        partitioner: Partitioner | None = None,
    ) -> None: ...
    def check(self) -> None: ...
    def set_partitions(self, topic: str, count: int) -> None: ...
    def partitions_of(self, topic: str) -> int | None: ...
    def topics(self) -> list[str]: ...
    def add(
        self,
        kind: type[_D],
        topic: str,
        value: object,
        key: object,
        headers: object,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> _D | None: ...
    def size_of(self, value: object, key: object, headers: object) -> int: ...
    def has_room(self, size: int) -> bool: ...
    def add_batch(self, batch: Batch, size: int) -> bool: ...
    def seal_due(self, now: int) -> int | None: ...
    def seal_all(self) -> None: ...
