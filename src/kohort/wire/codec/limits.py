"""Limits on the data that this package accepts from a peer, in one place.

Bytes may be hostile. Every length and count is first checked against the bytes that remain, so
the numbers here only bound what a well-formed but hostile (or broken) peer can cost.
"""

from __future__ import annotations

from msgspec import Struct

_KIB = 1024
_MIB = 1024 * _KIB


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds on what a peer may send; beyond them it gets a `RemoteProtocolError`.

    Attributes:
        max_frame_bytes: A request or response without its length. Kafka's own brokers
            (`socket.request.max.bytes`) and librdkafka stop at 100 MiB too.
        max_unauthenticated_frame_bytes: The same before a peer has authenticated. It has only
            ApiVersions and SASL messages to send; the largest of them, a Kerberos or OAuth token,
            stays under 64 KiB.
        max_string_bytes: A string. The classic encoding has an int16 length; Kafka refuses longer
            strings in the compact encoding as well.
        max_request_elements: Elements of all arrays of one request. Each costs a broker up to 100
            microseconds and several hundred bytes, whatever its own size is, and all clients wait
            meanwhile; a request about ten thousand partitions has some ten thousand.
        max_tagged_fields: Tagged fields of one structure (KIP-482). Kafka's messages use at most
            seven; unknown ones are skipped, and this bounds the skipping.
        max_nesting: Depth of structures inside structures. Kafka's deepest message has five.
        max_decompressed_bytes: Records of one batch after decompression. Batches are built from
            uncompressed bytes by size (`batch.size`, 16 KiB; at most a `max.request.size`, 1 MiB),
            so this leaves two orders of magnitude, and bounds the cost of a bomb.
        max_decompression_ratio: Decompressed bytes per compressed byte. JSON reaches 20 and logs
            100; a gzip bomb has 1000 and a zstd bomb 30000.
        decompressed_bytes_always_allowed: The ratio counts only above this size: one value of a
            million zeros is odd but honest.
        max_records_per_batch: Records of one batch. The smallest record has 7 bytes, so the count
            is bounded by the bytes as well; this bounds the further cost of each.
        max_headers_per_record: Headers of one record. Kafka has no limit; people use a handful.
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
