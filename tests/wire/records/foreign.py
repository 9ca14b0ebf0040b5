"""The batch encoders and decoders of other libraries."""

from __future__ import annotations

import warnings

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords

from kohort.wire.records import Record

with warnings.catch_warnings():
    # It reads its schemas by a call that Python 3.11 alone calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

READERS = [AiokafkaRecords, KafkaPythonRecords]
BUILDERS = [AiokafkaBuilder, KafkaPythonBuilder]


def read_by(reader: type, data: bytes) -> list[Record]:
    """Return the one batch in `data` as a foreign library decodes it."""
    batch = reader(data).next_batch()
    assert batch.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
