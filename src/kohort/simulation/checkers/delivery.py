"""Delivery across rebalances: strict checks of S11 and S12 against ownership and commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.group.events import Ownership
from kohort.simulation.groups.facts import Called, Delivered, Positioned, Recorded
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.rules import rule
from kohort.types import TopicPartition
from kohort.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld


@rule(
    "S11",
    "The first record after an assignment is the one at the newest committed offset.",
    Positioned,
)
def begins_at_committed(world: BaseWorld, fact: Positioned) -> str | None:
    """Compare an application's first offset with the committed one."""
    client, ledger = fact.client, world.ledger
    key = (client.name, client.life, fact.partition)
    ledger.positions[key] = max(fact.offset, 0)
    if not world.is_current(client):
        return None
    committed = ledger.committed(GROUP, fact.partition)
    if fact.offset != committed and not ledger.reading(fact.partition).is_tainted:
        return f"{client.name} begins {fact.partition} at {fact.offset}, committed is {committed}"
    return None


@rule(
    "S11",
    "Records come only from owned partitions, and without a gap during an ownership.",
    Delivered,
)
def contiguous(world: BaseWorld, fact: Delivered) -> str | None:
    """Compare records with the previous ones."""
    client = fact.client
    if fact.partition not in client.application.believes:
        return f"{client.name} gets records of {fact.partition}, which it does not own"
    key = (client.name, client.life, fact.partition)
    expected = world.ledger.positions.get(key)
    world.ledger.positions[key] = fact.end
    if expected != fact.first and not world.ledger.reading(fact.partition).is_tainted:
        return f"{client.name} gets {fact.partition} from {fact.first}, expected {expected}"
    return None


@rule(
    "S12",
    "No record is skipped, and after a graceful change none is handed out twice.",
    Delivered,
)
def nothing_skipped(world: BaseWorld, fact: Delivered) -> str | None:
    """Compare records with the ones that the group got before."""
    reading = world.ledger.reading(fact.partition)
    if reading.is_tainted:
        return None
    before = reading.delivered
    if fact.first > before:
        return f"{fact.partition} [{before}, {fact.first}) was never handed out"
    again = min(before, fact.end) - fact.first
    if again > 0:
        reading.repeated += again
        if reading.is_clean and world.is_current(fact.client):
            return f"{again} records of {fact.partition} came twice after a graceful change"
    if fact.end > before or world.is_current(fact.client):
        reading.is_clean = False
    reading.delivered = max(before, fact.end)
    return None


@rule("S12", "Every record below an accepted commit was handed out.", Recorded)
def commits_only_delivered(world: BaseWorld, fact: Recorded) -> str | None:
    """Compare a stored position with the records handed out."""
    for record in fact.records:
        key, value = record.key, record.value
        if not isinstance(key, OffsetCommitKey) or key.group != GROUP:
            continue
        reading = world.ledger.reading(TopicPartition(key.topic, key.partition))
        if reading.is_tainted or not isinstance(value, OffsetCommitValue):
            continue
        if value.offset > reading.delivered:
            return (
                f"{key.topic}-{key.partition} is committed to {value.offset},"
                f" handed out to {reading.delivered}"
            )
    return None


@rule("S12", "(records how an ownership ended)", Called)
def note_end(world: BaseWorld, fact: Called) -> str | None:
    """Note whether all records read from a partition were committed when it was given up.

    A repeated commit that arrives after a newer one moves the position back.
    """
    if fact.begins or fact.change is Ownership.ASSIGNED:
        return None
    client, ledger = fact.client, world.ledger
    for partition in fact.partitions:
        key = (client.name, client.life, partition)
        read = ledger.positions.pop(key, None)
        reading = ledger.reading(partition)
        revoked = fact.change is Ownership.REVOKED
        everything = read is not None and read == reading.delivered
        stored = client.application.stored.get(partition)
        committed = ledger.committed(GROUP, partition)
        reading.is_clean = revoked and everything and stored == read == committed
    return None
