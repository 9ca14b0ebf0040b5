"""Transaction markers: control batches that end a transaction in one partition (KIP-98)."""

from __future__ import annotations

import struct

from msgspec import Struct

from kohort.errors import RemoteProtocolError
from kohort.wire.codec.schema import Buffer
from kohort.wire.records.encode import decode_records, encode_batch
from kohort.wire.records.record import Record

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, epoch of the coordinator
_ABORT, _COMMIT = 0, 1


class Marker(Struct, frozen=True):
    """A transaction marker.

    Attributes:
        producer_id: The producer whose transaction ends.
        producer_epoch: Its epoch; batches of earlier epochs are refused after the marker.
        committed: Whether its records are committed.
    """

    producer_id: int
    producer_epoch: int
    committed: bool


def encode_marker(marker: Marker, timestamp: int) -> bytes:
    """Encode a control batch with one record at offset 0, of a coordinator with epoch 0.

    Args:
        marker: The marker.
        timestamp: Milliseconds since the epoch.
    """
    key = _KEY.pack(0, _COMMIT if marker.committed else _ABORT)
    return encode_batch(
        [Record(0, timestamp, key, _VALUE.pack(0, 0))],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def committed_by(batch: Buffer) -> bool | None:
    """Return whether a control batch commits or aborts; None if it is of another kind.

    Raises:
        RemoteProtocolError: It does not consist of one valid control record.
    """
    records = decode_records(batch)
    if len(records) != 1 or records[0].key is None or len(records[0].key) < _KEY.size:
        raise RemoteProtocolError("a control batch must have one record, with its type in the key")
    kind = _KEY.unpack_from(records[0].key)[1]
    return {_ABORT: False, _COMMIT: True}.get(kind)
