"""The group log of the simulated cluster: bytes that survive, and what can happen to them.

A batch is whole or not there at all: a torn one fails its checksum and is cut off at the next load.
Only the leader of the highest epoch may append, which is what keeps an old coordinator harmless.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.wire import group_log
from kohort.wire.messages.group_records import GroupRecord

Encoded = tuple[bytes, bytes | None]


@dataclass(slots=True)
class GroupLog:
    """One partition of `__consumer_offsets`.

    Attributes:
        leader_epoch: Epoch of the only node that may append.
        batches: Its records as bytes, batch by batch.
    """

    leader_epoch: int = 0
    batches: list[tuple[Encoded, ...]] = field(default_factory=list)

    def append(self, records: tuple[GroupRecord, ...]) -> None:
        """Add records as one batch."""
        self.batches.append(tuple(group_log.encode_record(r.key, r.value) for r in records))

    def tear(self) -> None:
        """Lose the last batch: it was not written to its end."""
        self.batches.pop()

    def compact(self, upto: int) -> None:
        """Keep, of the first `upto` batches, only the newest record of each key.

        Tombstones stay, as they do in Kafka for a day.
        """
        newest: dict[bytes, tuple[int, Encoded]] = {}
        head = [record for batch in self.batches[:upto] for record in batch]
        for position, record in enumerate(head):
            newest[record[0]] = (position, record)
        kept = tuple((record,) for _, record in sorted(newest.values(), key=lambda entry: entry[0]))
        self.batches[:upto] = kept

    def read(self) -> list[GroupRecord]:
        """Return all records, oldest first."""
        decoded = (group_log.decode_record(*record) for batch in self.batches for record in batch)
        return [record for record in decoded if record is not None]

    def __len__(self) -> int:
        return len(self.batches)
