from collections.abc import Sequence

from kohort.client.consumer.records import ConsumerRecord
from kohort.wire.records.record import Record

def consumer_records(
    kind: type[ConsumerRecord],
    topic: str,
    partition: int,
    timestamp_type: int,
    leader_epoch: int,
    records: list[Record],
    start: int,
    count: int,
) -> list[ConsumerRecord]: ...
def bytes_of(records: Sequence[ConsumerRecord]) -> int: ...
def records_from(records: list[Record], position: int) -> list[Record]: ...
