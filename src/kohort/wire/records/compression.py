"""The codecs of record batches, with a bound on the cost of decompression.

The libraries are loaded when a codec is first used: a broker that never receives a compressed batch
never loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kohort.errors import RemoteProtocolError
from kohort.wire.codec.limits import DEFAULT_LIMITS, Limits
from kohort.wire.codec.schema import Buffer
from kohort.wire.records.header import Compression

if TYPE_CHECKING:
    from types import ModuleType

# Java's clients frame snappy as the xerial library does; librdkafka sends one raw block.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024

_FIRST_GUESS = 64 * 1024
_GUESSED_RATIO = 4

# The text of cramjam's error if the output does not fit, and only then.
_OUTPUT_FULL = "failed to write whole buffer"


def compress(codec: Compression, data: Buffer) -> bytes:
    """Compress `data` as Kafka's own clients do, at the codec's usual level."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.SNAPPY:
        return _compress_snappy(data)
    if codec is Compression.LZ4:
        return _compress_lz4(data)
    return bytes(_library(codec).compress(data, level=_LEVELS[codec]))


def decompress(codec: Compression, data: Buffer, limits: Limits = DEFAULT_LIMITS) -> memoryview:
    """Return decompressed data.

    Raises:
        RemoteProtocolError: The bytes are not valid for the codec, or the result would be larger
            than `limits` allow. No more than that is ever allocated.
    """
    if codec is Compression.NONE:
        return memoryview(data)
    allowed = limits.decompressed_bytes(len(data))
    if codec is Compression.SNAPPY:
        return _decompress_snappy(data, allowed)
    return _decompress_growing(codec, data, allowed)


# The defaults of Java's clients.
_LEVELS = {Compression.GZIP: 6, Compression.ZSTD: 3}


def _library(codec: Compression) -> ModuleType:
    import cramjam

    module: ModuleType = getattr(cramjam, codec.name.lower())
    return module


def _decompress_growing(codec: Compression, data: Buffer, allowed: int) -> memoryview:
    """Decompress into a buffer that is enlarged until the output fits or `allowed` is reached."""
    import cramjam

    decompress_into: Callable[[Buffer, bytearray], int] = _library(codec).decompress_into
    size = min(allowed, max(_FIRST_GUESS, _GUESSED_RATIO * len(data)))
    while True:
        out = bytearray(size)
        try:
            return memoryview(out)[: decompress_into(data, out)]
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise _corrupt(codec, error) from None
        if size == allowed:
            raise _too_large(codec, len(data), allowed)
        del out  # before the larger one is allocated
        size = min(allowed, 4 * size)


def _compress_lz4(data: Buffer) -> bytes:
    """Compress in lz4's fast mode; Java's clients reject blocks that refer to earlier ones."""
    import cramjam

    compressor = cramjam.lz4.Compressor(level=0, block_linked=False)
    compressor.compress(data if isinstance(data, bytes) else bytes(data))  # it takes only bytes
    return bytes(compressor.finish())


def _compress_snappy(data: Buffer) -> bytes:
    """Compress `data` to xerial frames, which every Kafka client can read."""
    import cramjam

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK])
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)


def _decompress_snappy(data: Buffer, allowed: int) -> memoryview:
    """Decompress raw or framed blocks; each declares its size, so the exact size is allocated."""
    import cramjam

    view = memoryview(data)
    framed = bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    blocks = list(_xerial_blocks(view)) if framed else [view]
    sizes = [_snappy_size(block) for block in blocks]
    if sum(sizes) > allowed:
        raise _too_large(Compression.SNAPPY, len(view), allowed)
    out = memoryview(bytearray(sum(sizes)))
    at = 0
    for block, size in zip(blocks, sizes, strict=True):
        try:
            written = cramjam.snappy.decompress_raw_into(block, out[at : at + size])
        except cramjam.DecompressionError as error:
            raise _corrupt(Compression.SNAPPY, error) from None
        if written != size:
            raise RemoteProtocolError(f"snappy block of {written} bytes announces {size}")
        at += size
    return out


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    at = len(_XERIAL_HEADER)
    while at < len(view):
        length = int.from_bytes(view[at : at + 4], "big")
        at += 4
        if at + length > len(view):
            raise RemoteProtocolError(f"snappy frame of {length} bytes is truncated")
        yield view[at : at + length]
        at += length


def _snappy_size(block: memoryview) -> int:
    """Return the uncompressed size, an unsigned 32-bit varint before the block."""
    size = 0
    for position, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return size
    raise RemoteProtocolError("snappy block without a size")


def _corrupt(codec: Compression, error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"records are not valid {codec.name.lower()}: {error}")


def _too_large(codec: Compression, size: int, allowed: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{size} bytes of {codec.name.lower()} decompress to more than the limit of {allowed} bytes"
    )
