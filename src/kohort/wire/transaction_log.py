"""Encodes and decodes records of the `__transaction_state` topic (KIP-98)."""

from __future__ import annotations

from kohort.wire.codec import coding
from kohort.wire.codec.schema import Buffer
from kohort.wire.messages.transaction_records import TransactionKey, TransactionValue


def encode_transaction(
    key: TransactionKey, value: TransactionValue | None
) -> tuple[bytes, bytes | None]:
    """Return key and value of a log record, in the versions that Kafka 4 writes."""
    encoded = coding.encode_versioned(key, 0)
    return encoded, None if value is None else coding.encode_versioned(value, 1)


def decode_transaction(
    key: Buffer, value: Buffer | None
) -> tuple[TransactionKey, TransactionValue | None] | None:
    """Decode a record of the log; None if its kind is unknown.

    Raises:
        RemoteProtocolError: It is of a known kind, but malformed.
    """
    view = memoryview(key)
    version, at = coding.read_version(view)
    if version > TransactionKey.max_version:
        return None
    read_key = coding.decode_rest(TransactionKey, version, view, at)
    if value is None:
        return read_key, None
    view = memoryview(value)
    version, at = coding.read_version(view)
    return read_key, coding.decode_rest(TransactionValue, version, view, at)
