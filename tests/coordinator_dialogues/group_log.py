"""What a group has in `__consumer_offsets`, as tables of a data file; and such tables as records.

A record is `{ kind = 8, member_id = "a", version = 0, bytes = 40, member_epoch = 2, ... }`: the
version of its key, which is its kind, what else is in the key but the group's name, the version and
the size of the value, and its fields; or `tombstone = true`. The size holds us to Kafka's layout of
the bytes, which are read here by what wrote them in our broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from kohort.wire.codec import coding
from kohort.wire.codec.schema import Message
from kohort.wire.group_log import decode_record
from kohort.wire.messages import consumer_group_records as consumer
from kohort.wire.messages import group_records as classic
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.records import Record, decode_records, iter_batches
from tests.coordinator_dialogues.client import METADATA, Client
from tests.coordinator_dialogues.names import Names
from tests.coordinator_dialogues.toml import Value, render
from tests.coordinator_dialogues.values import Shower, Writer

TOPIC = "__consumer_offsets"
FETCH = 12
_MAX_BYTES = 1 << 20
_OF_MEMBERS = (5, 7, 8)
_KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (classic.OffsetCommitKey, classic.OffsetCommitValue),
    1: (classic.OffsetCommitKey, classic.OffsetCommitValue),
    2: (classic.GroupMetadataKey, classic.GroupMetadataValue),
    **{key.max_version: (key, value) for key, value in consumer.KINDS},
}

RawRecord = tuple[bytes, bytes | None]


def partition_of(group: str, partitions: int) -> int:
    """Where a group has its records (C1), by Java's `String.hashCode`; names are ASCII here."""
    number = 0
    for character in group.encode("ascii"):
        number = (number * 31 + character) & 0xFFFFFFFF
    return abs(number - (1 << 32) if number >> 31 else number) % partitions


class GroupLog:
    """The records of one dialogue's group, read by plain Fetch requests."""

    def __init__(self, client: Client, names: Names) -> None:
        self._client = client
        self._names = names
        self._read_to = 0

    @property
    def group(self) -> str:
        """Whose records these are."""
        return str(self._names.values["group"])

    async def partition(self) -> int:
        """The partition that they are in."""
        topics = (MetadataRequestTopic(name=TOPIC),)
        answer: Any = await self._client.ask(MetadataRequest(topics=topics), METADATA)
        return partition_of(self.group, len(answer.topics[0].partitions))

    async def news(self, until: Any) -> list[Value] | None:
        """Tables of what came since the last time; None if `until` does not like them yet."""
        records, end = await self._fetch(await self.partition(), self._read_to)
        tables = [table for record in records if (table := self._table(record)) is not None]
        shown = _with_members_sorted(tables)
        if not until(render(shown)):
            return None
        self._read_to = end
        return shown

    async def _fetch(self, partition: int, offset: int) -> tuple[list[Record], int]:
        found: list[Record] = []
        while True:
            wanted = FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=_MAX_BYTES
            )
            topics = (FetchTopic(topic=TOPIC, partitions=(wanted,)),)
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=_MAX_BYTES, topics=topics)
            answer: Any = await self._client.ask(request, FETCH)
            (data,) = answer.responses[0].partitions
            assert data.error_code == 0, data
            batches = list(iter_batches(data.records or b""))
            if not batches:
                return found, offset
            found += [each for _, batch in batches for each in decode_records(batch)]
            offset = batches[-1][0].next_offset

    def _table(self, record: Record) -> dict[str, Value] | None:
        key, value = bytes(record.key or b""), record.value
        if self.group.encode() not in key:
            return None
        known = decode_record(key, value)
        if known is None:
            return {"kind": int.from_bytes(key[:2]), "bytes": len(value or b"")}
        if _group_of(known.key) != self.group:
            return None
        kind = int.from_bytes(key[:2])
        shower = Shower(self._names)
        said = shower.table(known.key, kind)
        table: dict[str, Value] = {"kind": kind}
        table |= {name: each for name, each in said.items() if not name.startswith("group")}
        if known.value is None or value is None:
            return {**table, "tombstone": True}
        version = int.from_bytes(value[:2])
        sized: dict[str, Value] = {"version": version, "bytes": len(value)}
        return {**table, **sized, **shower.table(known.value, version)}

    def written(self, tables: list[Mapping[str, object]]) -> list[RawRecord]:
        """The records that tables stand for; they are this group's."""
        return list(_written(tables, Writer(self._names, ""), self.group))


def _group_of(key: Message) -> str:
    return str(getattr(key, "group", "") or getattr(key, "group_id", ""))


def _with_members_sorted(tables: list[dict[str, Value]]) -> list[Value]:
    """Put records of one kind that follow each other in order: Kafka's come out of a hash map."""
    shown: list[Value] = []
    for kind, run in groupby(tables, key=itemgetter("kind")):
        records = list(run)
        if kind in _OF_MEMBERS:
            records.sort(key=itemgetter("member_id"))
        shown += records
    return shown


def _written(tables: list[Mapping[str, object]], writer: Writer, group: str) -> Iterator[RawRecord]:
    for each in tables:
        table = {name: said for name, said in each.items() if name != "bytes"}
        kind = cast("int", table.pop("kind"))
        version = cast("int", table.pop("version", -1))
        is_gone = table.pop("tombstone", False)
        if kind not in _KINDS:
            yield kind.to_bytes(2) + group.encode(), bytes(2)
            continue
        key_class, value_class = _KINDS[kind]
        names = set(key_class.__annotations__)
        of_key = {name: said for name, said in table.items() if name in names}
        of_key["group" if "group" in names else "group_id"] = group
        key = coding.encode_versioned(writer.message(key_class, kind, of_key), kind)
        if is_gone:
            yield key, None
            continue
        of_value = {name: said for name, said in table.items() if name not in names}
        value = writer.message(value_class, version, of_value)
        yield key, coding.encode_versioned(value, version)
