"""The topics of the cluster, as last reported to the coordinator."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable
from functools import lru_cache

import xxhash
from immutables import Map
from msgspec import Struct


class TopicView(Struct, frozen=True):
    """A topic.

    Attributes:
        topic_id: Its id; a topic that is deleted and recreated gets a new id.
        partitions: Its number of partitions.
        racks: The racks of the replicas of each partition, in order; empty when no broker
            reports its rack. Entries with equal racks should be one object.
    """

    topic_id: uuid.UUID
    partitions: int
    racks: tuple[frozenset[str], ...] = ()

    @classmethod
    def of(cls, topic_id: uuid.UUID, partitions: int, rack: str | None) -> TopicView:
        """Return a topic whose replicas are all in one rack or in unknown racks."""
        return cls(topic_id, partitions, (frozenset({rack}),) * partitions if rack else ())


class TopicsImage(Struct, frozen=True):
    """All topics.

    Attributes:
        by_name: The topics.
        names: Name of each topic id.
        version: Version number, which grows with every change.
        created: The version in which a topic was last created.
    """

    by_name: Map[str, TopicView] = Map()
    names: Map[uuid.UUID, str] = Map()
    version: int = 0
    created: int = 0

    @classmethod
    def of(cls, topics: Iterable[tuple[str, TopicView]], before: TopicsImage) -> TopicsImage:
        """Return the next image, with these topics."""
        by_name = dict(topics)
        version = before.version + 1
        new = any(view.topic_id not in before.names for view in by_name.values())
        return cls(
            Map(by_name),
            Map({view.topic_id: name for name, view in by_name.items()}),
            version,
            version if new else before.created,
        )

    def ids(self, names: Iterable[str]) -> frozenset[uuid.UUID]:
        """Return the ids of those topics that exist."""
        return frozenset(self.by_name[name].topic_id for name in names if name in self.by_name)

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Return a hash that changes when any of these topics changes (KIP-1101).

        It is Kafka's own hash, including racks, so that a group continues undisturbed when a Kafka
        broker takes over its log.
        """
        existing = sorted(name for name in names if name in self.by_name)
        if not existing:
            return 0
        hashes = (_topic_hash(name, self.by_name[name]) for name in existing)
        return _signed(b"".join(value.to_bytes(8, "little") for value in hashes))


NO_TOPICS = TopicsImage()


# Cached: every change of a group's members needs the hash, and topics rarely change.
@lru_cache(maxsize=10_000)
def _topic_hash(name: str, view: TopicView) -> int:
    """Hash a topic: a magic byte, its id, its name, its partitions; little endian, like hash4j."""
    raw = view.topic_id.bytes
    parts = (
        b"\0",
        raw[7::-1],
        raw[:7:-1],
        _text(name),
        _number(view.partitions),
        _partitions(view),
    )
    return xxhash.xxh3_64_intdigest(b"".join(parts))


def _partitions(view: TopicView) -> bytes:
    """Return the numbers of the partitions, each followed by the racks it is in."""
    if not view.racks:
        return struct.pack(f"<{view.partitions}i", *range(view.partitions))
    racks = {each: b"".join(map(_rack, sorted(each))) for each in {*view.racks}}
    return b"".join(_number(at) + racks[each] for at, each in enumerate(view.racks))


def _rack(name: str) -> bytes:
    """Encode a rack: Kafka writes its length before the name, and hash4j again after it."""
    return _number(len(name.encode("utf-16-le", "surrogatepass")) // 2) + _text(name)


def _text(text: str) -> bytes:
    data = text.encode("utf-16-le", "surrogatepass")
    return data + _number(len(data) // 2)


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _signed(data: bytes) -> int:
    value = xxhash.xxh3_64_intdigest(data)
    return value - (1 << 64) if value >= 1 << 63 else value
