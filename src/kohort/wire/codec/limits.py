"""Limits on the data that this package accepts from a peer.

Bytes may be hostile. Every length and count is checked against the remaining bytes first, so these
numbers only bound the cost of well-formed data from a hostile or broken peer.
"""

from __future__ import annotations

from msgspec import Struct

_KIB = 1024
_MIB = 1024 * _KIB


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds on what a peer may send; beyond them it gets a `RemoteProtocolError`.

    Attributes:
        max_frame_bytes: Size of a request or response without its length. Kafka's brokers
            (`socket.request.max.bytes`) and librdkafka have the same limit of 100 MiB.
        max_unauthenticated_frame_bytes: The same before a peer has authenticated. It sends only
            ApiVersions and SASL messages; the largest of them, with a Kerberos or OAuth token, are
            below 64 KiB.
        max_string_bytes: Size of a string. The classic encoding has an int16 length; Kafka rejects
            longer strings in the compact encoding as well.
        max_request_elements: Elements of all arrays of one request. Each of any size costs a broker
            up to 100 microseconds and several hundred bytes, while all clients wait; a request for
            ten thousand partitions has about ten thousand elements.
        max_tagged_fields: Tagged fields of one structure (KIP-482). Kafka's messages have at most
            seven; unknown ones are skipped, and this bounds the time for that.
        max_nesting: Depth of nested structures. Kafka's deepest message has five levels.
        max_decompressed_bytes: Size of a batch's records after decompression. Producers limit
            batches by their uncompressed size (`batch.size`, 16 KiB; at most `max.request.size`, 1
            MiB), so this leaves two orders of magnitude, and bounds the cost of a decompression
            bomb.
        max_decompression_ratio: Decompressed bytes per compressed byte. JSON reaches 20 and logs
            100; a gzip bomb has 1000 and a zstd bomb 30000.
        decompressed_bytes_always_allowed: Size below which the ratio is not checked: a single value
            of a million zeros is legal.
        max_records_per_batch: Records of one batch. The smallest record has 7 bytes, so the bytes
            bound the count as well; this bounds the further cost per record.
        max_headers_per_record: Headers of one record. Kafka has no limit; a handful is usual.
    """

    max_frame_bytes: int = 100 * _MIB
    max_unauthenticated_frame_bytes: int = 64 * _KIB
    max_string_bytes: int = 32 * _KIB - 1
    max_request_elements: int = 100_000
    max_tagged_fields: int = 64
    max_nesting: int = 16
    max_decompressed_bytes: int = 128 * _MIB
    max_decompression_ratio: int = 256
    decompressed_bytes_always_allowed: int = 16 * _MIB
    max_records_per_batch: int = 4 * _MIB
    max_headers_per_record: int = 64 * _KIB

    def decompressed_bytes(self, compressed_bytes: int) -> int:
        """Return the maximum decompressed size of `compressed_bytes`."""
        by_ratio = compressed_bytes * self.max_decompression_ratio
        allowed = max(by_ratio, self.decompressed_bytes_always_allowed)
        return min(allowed, self.max_decompressed_bytes)


DEFAULT_LIMITS = Limits()
